# SPDX-License-Identifier: GPL-3.0-or-later
"""Two traps in checks of texts: ``$`` also matches before a last line break, and ``isdigit`` is true for '²'."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.fakes.sources import nodes_of, text_of

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


def open_ends(source):
    """Yield the patterns that end in ``$`` without MULTILINE."""
    for call in nodes_of(source) if re.search(r"\$[\"']", source) else ():
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        pattern = call.args[0]
        if call.func.attr in ("compile", "match", "search", "sub") and isinstance(pattern, ast.Constant):
            text = pattern.value
            multiline = "MULTILINE" in ast.dump(call) or "(?m" in str(text)
            if isinstance(text, str) and re.search(r"(?<!\\)\$\Z", text) and not multiline:
                yield text


def test_a_pattern_ends_at_the_end():
    found = {path.relative_to(TOP): list(open_ends(text_of(path))) for path in FILES if path.name not in OF_LINES}
    assert {path: patterns for path, patterns in found.items() if patterns} == {}


def test_digits_are_those_of_ascii():
    found = {
        (str(path.relative_to(TOP)), line)
        for path in FILES
        for line in text_of(path).splitlines()
        if path.name not in OF_PROC and re.search(r"\.is(digit|numeric)\(\)", line)
    }
    assert {each for each in found if "isascii()" not in each[1]} == set()


def test_a_dollar_is_found():
    assert list(open_ends('re.match("a$", x); re.match("a\\\\$", x); re.search("(?m)a$", x)')) == ["a$"]
