# SPDX-License-Identifier: GPL-3.0-or-later
"""Two traps in checks of texts: ``$`` also matches before a last line break, and ``isdigit`` is true for '²'."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
FILES = sorted([*(TOP / "plugins").rglob("*.py"), *(TOP / "roles").rglob("files/*.py")])
# They read lines that were split before.
OF_LINES = {
    "config_files.py",
    "wheelhouse_host.py",
    "settings.py",
    "answers.py",
    "installers.py",
    "host.py",
    "packages.py",
}
OF_LINES |= {"counters.py", "packages.py", "lines.py"}
# They read the names of /proc.
OF_PROC = {"workers_host.py", "retention_host.py", "processes_host.py", "ports_host.py", "vllm-group.py"}


def open_ends(tree):
    """Yield the patterns that end in ``$`` without MULTILINE."""
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        pattern = call.args[0]
        if call.func.attr in ("compile", "match", "search", "sub") and isinstance(pattern, ast.Constant):
            text = pattern.value
            multiline = "MULTILINE" in ast.dump(call) or "(?m" in str(text)
            if isinstance(text, str) and re.search(r"(?<!\\)\$\Z", text) and not multiline:
                yield text


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TOP)))
def test_a_pattern_ends_at_the_end_and_digits_are_those_of_ascii(path):
    text = path.read_text()
    if path.name not in OF_LINES:
        assert list(open_ends(ast.parse(text))) == []
    if path.name not in OF_PROC:
        lines = [line for line in text.splitlines() if re.search(r"\.is(digit|numeric)\(\)", line)]
        assert [line for line in lines if "isascii()" not in line] == []


def test_a_dollar_is_found():
    assert list(open_ends(ast.parse('re.match("a$", x); re.match("a\\\\$", x); re.search("(?m)a$", x)'))) == ["a$"]
