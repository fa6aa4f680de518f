# SPDX-License-Identifier: GPL-3.0-or-later
"""Each promise of docs/explain/security.md has a test that tries to break it, or says that it promises nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

TOP = Path(__file__).resolve().parents[3]
PAGE = TOP / "docs/explain/security.md"
PROMISES = yaml.safe_load((TOP / "tests/hostile/promises.yml").read_text(encoding="utf-8"))
NONE = "none, because "


def bullets(text):
    """Return the bullets of a page, each in one line without the marks of Markdown."""
    found = re.findall(r"^- (.*(?:\n  .*)*)", text, re.MULTILINE)
    return [" ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", each).split()) for each in found]


def unknown(test):
    """Return whether a test is not there: a file with the name of a function behind two colons."""
    path, _colons, name = test.partition("::")
    if not (TOP / path).is_file():
        return True
    nodes = ast.walk(ast.parse((TOP / path).read_text(encoding="utf-8")))
    return not name or name not in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_each_promise_has_a_test_and_each_test_a_promise():
    found = bullets(PAGE.read_text(encoding="utf-8"))
    named = {each: [begin for begin in PROMISES if each.startswith(begin)] for each in found}
    assert [each for each, begins in named.items() if len(begins) != 1] == [], (
        "name its test in tests/hostile/promises.yml"
    )
    assert sorted(set(PROMISES) - {begin for begins in named.values() for begin in begins}) == []


def test_the_tests_of_the_promises_are_there():
    tests = [test for tests in PROMISES.values() for test in tests]
    assert all(PROMISES.values()) and len(tests) > len(PROMISES)
    assert [test for test in tests if not test.startswith(NONE) and unknown(test)] == []


def test_what_is_not_there_is_found():
    assert unknown("tests/none.py") and unknown("tests/unit/docs/test_security.py")
    assert unknown("tests/unit/docs/test_security.py::test_none")
    assert not unknown("tests/unit/docs/test_security.py::test_what_is_not_there_is_found")
    assert bullets("- A [b](c) `d`\n  e.\n- F\n\nText\n") == ["A b d e.", "F"]
