# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages show a user's value in the words of YAML; Python's repr would say None where the file has null."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.fakes.sources import nodes_of, text_of

TOP = Path(__file__).resolve().parents[3]
# A value follows these words in a message.
BEFORE_A_VALUE = ("found ", "key ", "this run has ")
REPR = ord("r")


def python_values(source: str) -> list[tuple[int, str]]:
    """Return line and source of each value that a message would show as Python writes it."""
    found: list[tuple[int, str]] = []
    if "!r}" not in source:
        return found
    for text in (node for node in nodes_of(source) if isinstance(node, ast.JoinedStr)):
        before = ""
        for part in text.values:
            if isinstance(part, ast.FormattedValue) and part.conversion == REPR:
                # The slice of a text is a text.
                cut = isinstance(part.value, ast.Subscript) and isinstance(part.value.slice, ast.Slice)
                if before.endswith(BEFORE_A_VALUE) and not cut:
                    found.append((part.lineno, ast.unparse(part.value)))
            before = part.value if isinstance(part, ast.Constant) else ""
    return found


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ('f"{where}: found {value!r}, expected a text"', [(1, "value")]),
        ('f"{where}: unknown key {key!r}"', [(1, "key")]),
        ('f"found {show_value(value)}, expected a text"', []),
        ('f"found {text[:60]!r}, expected a number"', []),
        ('f"no instance {name!r}"', []),
    ],
)
def test_the_search_finds_them(message, values):
    assert python_values(message) == values


def test_no_message_shows_a_value_as_python_writes_it():
    wrong = [
        f"{path.relative_to(TOP)}:{line}: {source}"
        for path in sorted((TOP / "plugins").rglob("*.py"))
        for line, source in python_values(text_of(path))
    ]
    assert not wrong, "use show_value of module_utils/common/kinds.py:\n" + "\n".join(wrong)
