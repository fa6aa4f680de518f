# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes and metrics of a vLLM, read from its source without importing it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

VERBS = {"get", "post", "put", "delete", "patch", "head", "websocket", "mount", "add_api_route"}
# FastAPI's own.
BUILT_IN = ("GET /docs", "GET /docs/oauth2-redirect", "GET /openapi.json", "GET /redoc")
METRIC = re.compile(r"vllm:[a-z][a-z0-9_]*[a-z0-9]")
# What Prometheus' client adds to the names of counters and histograms.
SUFFIXES = ("_total", "_count", "_sum", "_bucket")


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
                found |= _routes_of(node, node.func.attr)
    return sorted(found)


def _routes_of(call: ast.Call, verb: str) -> set[str]:
    path = call.args[0]
    if not isinstance(path, ast.Constant) or not isinstance(path.value, str) or not path.value.startswith("/"):
        return set()
    methods = ["GET" if verb in ("websocket", "mount") else verb.upper()]
    if verb == "add_api_route":
        lists = [word.value for word in call.keywords if word.arg == "methods" and isinstance(word.value, ast.List)]
        methods = [str(entry.value) for each in lists for entry in each.elts if isinstance(entry, ast.Constant)]
    return {f"{method} {path.value}" for method in methods}


def metrics(package: Path) -> list[str]:
    """Return the names of all metrics, as vLLM writes them: Prometheus' client adds suffixes to some."""
    found = set()
    for path in package.glob("**/*.py"):
        text = path.read_text(encoding="utf-8")
        if "vllm:" in text:
            # A sentence may name a metric too; a name in the code is a whole constant.
            constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
            found |= {str(value) for value in constants if isinstance(value, str) and METRIC.fullmatch(value)}
    return sorted(found)


def has_metric(name: str, names: set[str]) -> bool:
    """Return whether a server with these metrics shows a series of this name."""
    return name in names or any(name.endswith(suffix) and name[: -len(suffix)] in names for suffix in SUFFIXES)
