# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of a module are those that its documentation describes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.common.documented import documented_arguments

PLUGINS = Path(__file__).resolve().parents[5] / "plugins"
DOCUMENTED = sorted([*PLUGINS.glob("modules/*.py"), *PLUGINS.glob("doc_fragments/*.py")])
PROSE = ("description", "version_added")


def specs(options):
    """Return the argument spec of options, as a YAML library reads them."""
    found = {}
    for name, option in options.items():
        kept = {key: value for key, value in option.items() if key not in (*PROSE, "suboptions")}
        more = {"options": specs(option["suboptions"])} if "suboptions" in option else {}
        found[name] = {**kept, **more, "no_log": False}
    return found


@pytest.mark.parametrize("path", DOCUMENTED, ids=lambda path: path.stem)
def test_each_documentation_is_read_as_a_yaml_library_reads_it(path):
    text = path.read_text(encoding="utf-8").partition('DOCUMENTATION = r"""')[2].partition('"""')[0]
    assert documented_arguments(text) == specs(yaml.safe_load(text).get("options") or {})


def test_values_have_the_types_that_they_have_in_yaml():
    text = """
options:
  one:
    description: A sentence of
      two lines, with default: 7 in it.
    type: int
    default: 7
    version_added: 0.1.0
  two:
    description:
      - "With a colon: here"
    choices: [a, "",
      c]
    default: "7"
  three:
    type: list
    choices:
      - x
      - y
    default: []
    suboptions:
      inner:
        required: true
notes:
  - default: none
"""
    assert documented_arguments(text, secret=("two", "inner")) == {
        "one": {"type": "int", "default": 7, "no_log": False},
        "two": {"choices": ["a", "", "c"], "default": "7", "no_log": True},
        "three": {
            "type": "list",
            "choices": ["x", "y"],
            "default": [],
            "no_log": False,
            "options": {"inner": {"required": True, "no_log": True}},
        },
    }


def test_a_module_without_options_takes_none():
    assert documented_arguments("\nmodule: a\noptions: {}\n") == documented_arguments("\nmodule: a\n") == {}
