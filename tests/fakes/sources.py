# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests that read all sources of the collection have in common. Trees are not kept: searching so many objects for
garbage takes longer than parsing again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=None)
def text_of(path: Path) -> str:
    """Return the text of a file that no test changes."""
    return path.read_text(encoding="utf-8")


def nodes_of(source: str) -> Iterator[ast.AST]:
    """Yield all nodes of a source."""
    return ast.walk(ast.parse(source))


def called(call: ast.Call) -> str:
    """Return what a call calls, such as `os.open`."""
    return named(call.func)


def named(node: ast.expr) -> str:
    """Return a name with its dots as `ast.unparse` would, which takes fifty times as long for a plain name.

    `getattr(os, "open")` is `os.open`, and `os.*` where the name is computed.
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}"
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 1:
        return f"{named(node.args[0])}.{getattr(node.args[1], 'value', '*')}"
    return ast.unparse(node)
