# SPDX-License-Identifier: GPL-3.0-or-later
"""The base class of actions that decide on the controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.action import ControllerAction
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.yaml import UnreadableError

from tests.fakes.actions import Task


class Reader(ControllerAction):
    ARGUMENT_SPEC: ClassVar = {"path": {"type": "str", "required": True}}
    ERRORS = (ValueError,)

    # The loader of plugins sets it; ansible-core 2.18 names it in its own message.
    _load_name = "reader"

    def decide(self, options, variables):
        if options["path"] == "/here":
            return {"text": variables["text"]}
        try:
            raise FileNotFoundError(2, "No such file")
        except FileNotFoundError as exc:
            raise ValueError(f"path: {options['path']} is not there") from exc


def run(**options):
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    return Reader(Task("reader", options), nowhere, None, None, None, None).run(task_vars={"text": "hello"})


def test_the_decision_is_the_result():
    assert run(path="/here") == {"changed": False, "text": "hello"}


def test_a_terminal_obeys_no_diff(monkeypatch):
    found = {"diff": [{"prepared": "+a\x1b[2J\n+b\tc\n"}]}
    monkeypatch.setattr(Reader, "decide", lambda *_given: found)
    assert run(path="/here")["diff"] == [{"prepared": "+a\\x1b[2J\n+b\tc\n"}]


def test_the_message_of_an_error_is_shown_once_without_its_causes():
    with pytest.raises(AnsibleActionFail) as caught:
        run(path="/nowhere")
    assert caught.value.message == "path: /nowhere is not there"


@pytest.mark.parametrize(("error", "shown"), [(UnreadableError("a: found x"), "a: found x"), (KeyError("x"), None)])
def test_an_error_of_the_collection_is_a_message_and_any_other_is_a_defect(monkeypatch, error, shown):
    def decide(self, options, variables):
        raise error

    monkeypatch.setattr(Reader, "decide", decide)
    with pytest.raises(AnsibleActionFail if shown else KeyError) as caught:
        run(path="/here")
    assert shown is None or caught.value.message == shown


def test_an_unknown_option_is_refused():
    with pytest.raises(AnsibleActionFail, match="pth"):
        run(path="/here", pth="/there")
