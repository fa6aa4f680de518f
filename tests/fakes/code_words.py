# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that code uses, without what it documents or declares, to find options that nothing reads."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
_DOCUMENTS = {"DOCUMENTATION", "EXAMPLES", "RETURN"}


@lru_cache(maxsize=None)
def read_code(path):
    """Return the words that a file uses, and the files of the collection that it imports.

    Documentation does not count, nor do the options that an argument spec declares.
    """
    words, imports = set(), set()
    waiting = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in _DOCUMENTS:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            imports |= {folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names)}
        if isinstance(node, ast.Dict):
            waiting += [key for key, value in zip(node.keys, node.values) if key and not _declares_option(value)]
            waiting += node.values
            continue
        waiting += ast.iter_child_nodes(node)
        if not (isinstance(node, ast.keyword) and _declares_option(node.value)):
            words |= {
                getattr(node, field)
                for field in ("attr", "arg", "id", "value")
                if field in node._fields and isinstance(getattr(node, field), str)
            }
    return frozenset(words), frozenset(file for file in imports if file.is_file())


def _declares_option(value):
    """Return whether this is the declaration of an option: a mapping with a type."""
    return isinstance(value, ast.Dict) and "type" in {getattr(key, "value", None) for key in value.keys}


def unread(names, files):
    """Return those of ``names`` that neither ``files`` nor the files that they import use."""
    left, seen, waiting = set(names), set(), [file for file in files if file.is_file()]
    while left and waiting:
        file = waiting.pop(0)
        if file not in seen:
            seen.add(file)
            words, imports = read_code(file)
            left -= words
            waiting += imports
    return left
