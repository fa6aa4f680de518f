# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that Ansible calls read options, call a room and return its result: they stay small."""

from __future__ import annotations

import ast

import pytest
import yaml

from tests.fakes.code_words import PLUGINS, unread

DOORS = ("modules", "action", "inventory", "filter", "lookup", "callback", "vars")
# Lines of the bodies of all functions of a file, without their docstrings.
MOST = 60


def lines_of_bodies(source: str) -> int:
    total, waiting = 0, [ast.parse(source)]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                total += body[-1].end_lineno - body[0].lineno + 1 if body else 0
            else:
                waiting.append(node)
    return total


def test_no_door_has_more_lines_than_it_needs():
    """A door has grown: move what it decides into its room in plugins/module_utils or plugins/plugin_utils."""
    doors = [path for kind in DOORS for path in sorted((PLUGINS / kind).glob("*.py"))]
    found = {str(path.relative_to(PLUGINS)): lines_of_bodies(path.read_text(encoding="utf-8")) for path in doors}
    assert len(found) > 100
    assert {name: lines for name, lines in found.items() if lines > MOST} == {}


def test_bodies_are_counted_once_and_without_docstrings():
    source = (
        'class A:\n    def b(self):\n        """Doc."""\n        def c():\n            return 1\n        return c\n'
    )
    assert lines_of_bodies(source) == 3


def options_of(path):
    """Return the options that a module documents itself, without those of a fragment."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION":
            return set(yaml.safe_load(ast.literal_eval(node.value)).get("options") or {})
    raise AssertionError(f"{path} documents nothing")


MODULES = sorted((PLUGINS / "modules").glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_something_reads_every_option(module):
    """Nothing reads an option: the module, its action and what they import do not name it, or only declare it."""
    assert unread(options_of(module), [module, PLUGINS / "action" / module.name]) == set()


def test_an_option_that_is_only_declared_counts_as_unread(tmp_path):
    (tmp_path / "rooms").mkdir()
    (tmp_path / "rooms/used.py").write_text("def read(params):\n    return params['port'], params.host\n")
    door = tmp_path / "door.py"
    door.write_text(
        "from .rooms import used\nDOCUMENTATION = 'prompt'\n"
        "spec = {'retries': {'type': 'int'}, 'port': {'type': 'int'}}\n"
        "more = dict(pause={'type': 'int', 'default': 3}, host=1)\n"
    )
    assert unread({"port", "host", "prompt", "retries", "pause"}, [door]) == {"prompt", "retries", "pause"}
