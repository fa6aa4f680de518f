#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the name and the type of every metric of a vLLM release from its sources.

    tools/vllm/read_metrics.py 0.33.0 DIR > catalog/metrics/0.33.0.yml

DIR holds the release's ``vllm/``, unpacked from its wheel or its source distribution (fetch_vllm_release.py unpacks
one). The sources are read with ``ast``; nothing of them runs. A metric that is there only with some option is listed
too.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path
from typing import Any, Iterator, Mapping

# The classes of prometheus_client, as modules and as attributes of vLLM's loggers name them.
KINDS = {"gauge": "gauge", "counter": "counter", "histogram": "histogram"}
CLASS = re.compile(r"_?(gauge|counter|histogram)(_cls|_class)?", re.IGNORECASE)
NAME = re.compile(r"vllm:[a-z0-9_]+")
# The engine that releases up to 0.10 had before the present one; its metrics have other names.
FORMER = "engine"


def metrics(root: Path) -> dict[str, str]:
    """Return the kind of each metric in the sources below ``root``/vllm. Raises ValueError where there are none."""
    found: dict[str, str] = {}
    for path in sorted((root / "vllm").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.relative_to(root / "vllm").parts[0] != FORMER and "vllm:" in text:
            found.update(_of_module(ast.parse(text, str(path))))
    if not found:
        raise ValueError(f"{root}: no metrics below vllm/; expected an unpacked release")
    return dict(sorted(found.items()))


def _of_module(module: ast.Module) -> Iterator[tuple[str, str]]:
    constants = {
        target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for function in [node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.Module))]:
        for call in [node for node in ast.walk(function) if isinstance(node, ast.Call)]:
            kind = _kind(call.func)
            for name in _names(call, function, constants) if kind else ():
                yield name, kind


def _kind(called: ast.expr) -> str:
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    match = CLASS.fullmatch(name)
    return KINDS[match[1].lower()] if match else ""


def _names(call: ast.Call, function: ast.AST, constants: Mapping[str, Any]) -> list[str]:
    """Return the names in a call that makes a metric: one, or all of the function where a loop gives it."""
    given = next((word.value for word in call.keywords if word.arg == "name"), call.args[0] if call.args else None)
    if isinstance(given, ast.Constant):
        texts: list[Any] = [given.value]
    elif isinstance(given, ast.Name) and given.id in constants:
        texts = [constants[given.id]]
    elif isinstance(given, ast.Name) and isinstance(function, ast.FunctionDef):
        texts = [
            node.elts[0].value
            for node in ast.walk(function)
            if isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant)
        ]
    else:
        texts = []
    return [text for text in texts if isinstance(text, str) and NAME.fullmatch(text)]


def document(version: str, found: dict[str, str]) -> str:
    """Return the table of a release."""
    lines = "".join(f'  "{name}": {kind}\n' for name, kind in found.items())
    return f'---\n# Read from the release by tools/vllm/read_metrics.py.\nversion: "{version}"\nmetrics:\n{lines}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the release")
    parser.add_argument("directory", type=Path, help="where its vllm/ is")
    words = parser.parse_args()
    try:
        print(document(words.version, metrics(words.directory)), end="")
    except (OSError, ValueError) as exc:
        print(f"read_metrics: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
