# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes of a vLLM, read from its source without importing it."""

from __future__ import annotations

import ast
from pathlib import Path

VERBS = {"get", "post", "put", "delete", "patch", "head", "websocket", "mount", "add_api_route"}
# FastAPI's own.
BUILT_IN = ("GET /docs", "GET /docs/oauth2-redirect", "GET /openapi.json", "GET /redoc")


def routes(package: Path) -> list[str]:
    """Return ``METHOD /path`` of every route below vllm/entrypoints; a websocket is asked for with GET."""
    found = set(BUILT_IN)
    for path in sorted(package.glob("entrypoints/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in VERBS
                and node.args
            ):
                found |= _routes_of(node)
    return sorted(found)


def _routes_of(call: ast.Call) -> set[str]:
    path = call.args[0]
    if not isinstance(path, ast.Constant) or not str(path.value).startswith("/"):
        return set()
    verb = call.func.attr
    if verb == "add_api_route":
        methods = [entry.value for word in call.keywords if word.arg == "methods" for entry in word.value.elts]
    else:
        methods = ["GET" if verb in ("websocket", "mount") else verb.upper()]
    return {f"{method} {path.value}" for method in methods}


if __name__ == "__main__":
    import sys

    print("\n".join(routes(Path(sys.argv[1]))))
