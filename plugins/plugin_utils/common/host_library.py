# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the files of the collection that a program of a host runs from: its module and all that it imports."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Iterator

COLLECTION = "ansible_collections/baremetal/inference/"
TOP = Path(__file__).resolve().parents[3]


def library(directory: str, module: str) -> list[dict[str, str]]:
    """Return directories and files below ``directory`` on the host, as entries of host_files, laid out as here.

    ``module`` is the file that the program imports, below the top of the collection.
    """
    top = f"{directory}/{COLLECTION}"
    files = [{"path": f"{top}{name}", "src": str(TOP / name), "mode": "0644"} for name in modules(module)]
    directories = sorted({entry["path"].rsplit("/", 1)[0] for entry in files})
    return [*({"path": path, "state": "directory", "mode": "0755"} for path in directories), *files]


@functools.lru_cache(maxsize=None)
def modules(module: str) -> tuple[str, ...]:
    """Return the paths of a module and of all that it imports, below the top of the collection."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(TOP / name)
    return tuple(sorted(found))


def _imports(path: Path) -> Iterator[str]:
    package = path.relative_to(TOP).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            place = "/".join([*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]).rstrip("/")
            names = [f"{place}.py", *(f"{place}/{alias.name}.py" for alias in node.names)]
            yield from (name for name in names if (TOP / name).is_file())
