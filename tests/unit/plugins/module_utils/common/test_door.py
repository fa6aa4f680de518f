# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.door import door, start_module
from ansible_collections.baremetal.inference.plugins.module_utils.common.file_set_host import FileSetError

from tests.fakes.module_arguments import patch_module_args

MODULES = Path(__file__).resolve().parents[6] / "plugins/modules"
OPTIONS = """
options:
  name:
    description: The name.
    type: str
    required: true
"""


class SiteError(Exception):
    """An error that a module expects."""


def printed(capsys, work, *errors, name="a", **more):
    with patch_module_args({"name": name}), pytest.raises(SystemExit):
        door(OPTIONS, *errors, **more)(work)()
    return json.loads(capsys.readouterr().out)


def test_a_result_is_printed(capsys):
    found = printed(capsys, lambda module: {"changed": True, "name": module.params["name"]})
    assert (found["changed"], found["name"]) == (True, "a")


def test_an_expected_error_is_the_message_and_a_terminal_can_print_it(capsys):
    def work(_module):
        raise SiteError("a: found \x1b[2J")

    found = printed(capsys, work, SiteError, OSError)
    assert found["failed"] and found["msg"] == "a: found \\x1b[2J"


@pytest.mark.parametrize("error", [FileSetError, type("OptionError", (Exception,), {"__module__": "__main__"})])
def test_an_error_of_the_collection_or_of_the_module_itself_is_expected(capsys, error):
    def work(_module):
        raise error("a: found b")

    assert printed(capsys, work)["msg"] == "a: found b"


def test_nothing_is_changed_unless_the_result_says_so(capsys):
    assert printed(capsys, lambda _module: {"name": "a"})["changed"] is False


def test_any_other_error_is_a_defect():
    with patch_module_args({"name": "a"}), pytest.raises(ZeroDivisionError):
        door(OPTIONS, SiteError)(lambda _module: {"changed": 1 / 0})()


@pytest.mark.parametrize(("more", "expected"), [({}, True), ({"supports_check_mode": False}, False)])
def test_modules_have_a_check_mode_unless_they_say_otherwise(more, expected):
    with patch_module_args({"name": "a"}):
        assert start_module(OPTIONS, **more).supports_check_mode is expected


def test_the_options_are_the_documented_ones_and_those_of_a_fragment():
    with patch_module_args({"name": "a", "root": "/b", "max_tokens": 1}):
        documentation = f"{OPTIONS}  max_tokens:\n    description: A limit.\n    type: int\n"
        module = start_module(documentation, secret=("name",), others={"root": {"type": "path"}})
    assert module.params == {"name": "a", "root": "/b", "max_tokens": 1}
    assert module.no_log_values == {"a"}


def test_no_module_begins_in_another_way():
    own = [path.name for path in MODULES.glob("*.py") if "AnsibleModule(" in path.read_text(encoding="utf-8")]
    assert own == [], "start_module makes the messages of a module harmless for a terminal"
