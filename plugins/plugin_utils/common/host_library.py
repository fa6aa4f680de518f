# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the files that a program of a host runs from: the program in a role, and all modules that it imports.

On the host, a program ``NAME.py`` has its modules in the directory ``NAME`` beside it, laid out as in the collection.
What vLLM imports lies in one directory, which is on its path, with all its modules.
"""

import ast
import functools
from pathlib import Path
from typing import Any, Iterable, Iterator

from ...module_utils.vllm.files import AVAILABILITY, LIBRARY, ROUTED

COLLECTION = "ansible_collections/baremetal/inference/"
PACKAGE = COLLECTION.replace("/", ".")
TOP = Path(__file__).resolve().parents[3]
DIRECTORY = "/usr/local/lib"
MIDDLEWARE = tuple(name.partition(".")[0] for name in (AVAILABILITY, ROUTED))


def program_files(name: str) -> list[dict[str, Any]]:
    """Return the files of a program, as entries of host_files: its modules first, because it may start at any time."""
    (program,) = TOP.glob(f"roles/*/files/{name}.py")
    modules = _closure(_imports(program))
    top, beside = (LIBRARY,) * 2 if name in MIDDLEWARE else (DIRECTORY, f"{DIRECTORY}/{name}")
    entry = {"path": f"{top}/{name}.py", "src": str(program), "mode": "0644"}
    return [*(library(beside, modules) if modules else []), entry]


def library(directory: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return directories and files below ``directory`` on the host, as entries of host_files, laid out as here."""
    top = f"{directory}/{COLLECTION}"
    files = [{"path": f"{top}{name}", "src": str(TOP / name), "mode": "0644"} for name in names]
    directories = sorted({entry["path"].rsplit("/", 1)[0] for entry in files})
    # Without this file, a package of the same name wins that the host's own Ansible has installed.
    marker = {"path": f"{directory}/ansible_collections/__init__.py", "content": "", "mode": "0644"}
    return [*({"path": path, "state": "directory", "mode": "0755"} for path in directories), marker, *files]


@functools.lru_cache(maxsize=None)
def modules(module: str) -> tuple[str, ...]:
    """Return the paths of a module and of all that it imports, below the top of the collection."""
    return _closure([module])


def _closure(names: Iterable[str]) -> tuple[str, ...]:
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _imports(TOP / name)
    return tuple(sorted(found))


def _imports(path: Path) -> Iterator[str]:
    """Yield the modules of the collection that a file imports."""
    package = path.relative_to(TOP).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = node.module or ""
        if node.level:
            place = "/".join([*package[: len(package) + 1 - node.level], *module.split(".")]).rstrip("/")
        elif module.startswith(PACKAGE):
            place = module[len(PACKAGE) :].replace(".", "/")
        else:
            continue
        names = [f"{place}.py", *(f"{place}/{alias.name}.py" for alias in node.names)]
        yield from (name for name in names if (TOP / name).is_file())
