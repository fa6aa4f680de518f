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
    """Return what a call calls, as `ast.unparse` would, which takes fifty times as long for a plain name."""
    names, node = [], call.func
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ast.unparse(call.func)
