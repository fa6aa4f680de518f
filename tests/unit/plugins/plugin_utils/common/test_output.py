# SPDX-License-Identifier: GPL-3.0-or-later
"""What is printed on the controller's terminal holds no character that the terminal obeys."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from unittest import mock

import pytest
from ansible.utils.display import Display
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.output import (
    OwnCounts,
    escaped,
    place_of,
    problem_of,
    show,
    show_json,
    warn,
)

from tests.fakes.sources import nodes_of, text_of

TOP = Path(__file__).resolve().parents[5]
HOSTILE = "a\x1b[2Jb\x07c\rd\x7fe\x9bf\u202eg\n\u00e4 second line"
SHOWN = "a\\x1b[2Jb\\x07c\\rd\\x7fe\\x9bf\\u202eg\n\u00e4 second line"


@pytest.mark.parametrize("print_it, method", [(show, "display"), (warn, "warning")])
def test_controls_are_escaped_and_lines_stay(print_it, method):
    with mock.patch.object(Display, method) as printed:
        print_it(HOSTILE)
    assert printed.call_args.args == (SHOWN,)
    assert escaped([HOSTILE]) == [SHOWN]


@pytest.mark.parametrize("values, told", [
    ({"msg": "Task failed: Module failed: no space\n  left"}, "no space left"),
    ({"msg": ["one", "two"]}, "one two"),
    ({"msg": "non-zero return code", "stderr": "Reading\nE: no package\n"}, "non-zero return code: E: no package"),
    ({"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "no"}]}, "no"),
    ({"msg": "All items completed", "results": [{"item": "g", "unreachable": True, "msg": "refused"}]}, "g: refused"),
    ({"msg": "Finalization of task args for 'a.b.c' failed: Error while resolving value for 'd': The filter plugin "
             "'a.b.strict_bool' failed: e: found 'f', expected true or false"}, "e: found 'f', expected true or false"),
    ({}, "it failed without a message"),
])  # fmt: skip
def test_why_a_task_failed_is_one_line(values, told):
    assert problem_of(values) == told


def test_an_item_that_is_a_host_is_the_place():
    """A gateway knows its own name, which need not be that of the inventory."""
    values = {"results": [{"failed": True, "item": "gw-1", "msg": "node7: service chat: no"}]}
    assert problem_of(values, "{{ item }}") == "gw-1: node7: service chat: no"
    assert problem_of(values) == problem_of(values, "gw-2") == "node7: service chat: no"
    values["results"][0]["msg"] = "gw-1: service chat: no"
    assert problem_of(values, "{{ item }}") == "gw-1: service chat: no"


def result_of(values=None, **task):
    """A result of the host a, as Ansible gives it to a callback."""
    defaults = {"run_once": False, "delegate_to": None}
    host = mock.Mock(get_name=lambda: "a")
    return mock.Mock(host=host, task=mock.Mock(**{**defaults, **task}), result={"unreachable": False, **(values or {})})


GONE = {"unreachable": True}


@pytest.mark.parametrize("result, place", [
    (result_of(), "a"),
    (result_of(run_once=True), ""),
    (result_of(delegate_to="gw"), "a"),
    (result_of(GONE), "a"),
    (result_of(GONE, run_once=True), "a"),
    (result_of(GONE, delegate_to="gw"), "gw"),
    (result_of({**GONE, "results": [{**GONE, "item": "gw"}]}, delegate_to="{{ item }}"), ""),
    (result_of({**GONE, "results": [{**GONE, "item": {"h": "gw"}}]}, delegate_to="{{ item.h }}"), "a"),
])  # fmt: skip
def test_where_a_task_failed(result, place):
    assert place_of(result) == place


def test_a_host_has_its_own_failures_only():
    """Ansible counts for a host what fails once for all, and no longer what was rescued."""
    counted = {"failures": 2, "ok": 3}
    stats = mock.Mock(processed={"a": 1}, summarize=lambda _name: counted)
    own = OwnCounts()
    own.add(result_of(run_once=True), "failures")
    assert own.correct(stats, ["failures"]) == {"a": {"failures": 0, "ok": 3}}
    own.add(result_of(), "failures")
    assert own.correct(stats, ["failures"])["a"]["failures"] == 1
    counted["failures"] = 0
    assert own.correct(stats, ["failures"])["a"]["failures"] == 0


def test_json_stays_json():
    with mock.patch.object(Display, "display") as printed:
        show_json({HOSTILE: [HOSTILE]})
    (text,) = printed.call_args.args
    assert json.loads(text) == {HOSTILE: [HOSTILE]}
    assert text.replace("\n", "").isprintable() and text.isascii()


def test_nothing_else_prints():
    """Neither through Ansible's Display nor by print: both would pass on what a recipe, a host or a BMC says."""
    doors = {"plugins/plugin_utils/common/output.py"}
    found = []
    for path in sorted(TOP.glob("plugins/**/*.py")):
        name = path.relative_to(TOP).as_posix()
        if name in doors or name.startswith(("plugins/module_utils/", "plugins/modules/")):
            continue
        text = text_of(path)
        for node in nodes_of(text) if re.search(r"display|Display|print", text) else ():
            if isinstance(node, ast.Name) and node.id in ("Display", "print"):
                found.append(f"{name}:{node.lineno}")
            if isinstance(node, ast.Attribute) and node.attr in ("display", "_display"):
                found.append(f"{name}:{node.lineno}")
    assert found == []
