# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an inventory, as texts."""

import contextlib
from pathlib import Path
from typing import Container, Iterable, Sequence

# Directories of variables beside an inventory file.
BESIDE = ("group_vars", "host_vars")
# In Ansible's order: of the files of one name it reads the first.
SUFFIXES = ("", ".yml", ".yaml", ".json")
MAX_FILE_BYTES = 1024 * 1024


def inventory_texts(sources: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the files that people write for the sources of an inventory, with their texts; a vault is not opened."""
    found: dict[Path, str] = {}
    for source in map(Path, sources):
        tops = [source] if source.is_dir() else [source, *(source.parent / name for name in BESIDE)]
        for path in (path for top in tops for path in ([top] if top.is_file() else sorted(top.rglob("*")))):
            hidden = any(part.startswith(".") for part in path.relative_to(source.parent).parts)
            if path.suffix not in SUFFIXES or hidden or path in found:
                continue
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                    # Not read_text, which would change the ends of lines.
                    found[path] = path.read_bytes().decode("utf-8")
    return list(found.items())


def passed_over(paths: Iterable[Path], known: Container[str]) -> dict[Path, str]:
    """Return why Ansible reads nothing from some files or directories of ``known`` groups, or hosts.

    ``paths`` are those of one directory of variables. A copy beside the file that is read, such as inference.yml.bak,
    is left out.
    """
    found: dict[Path, str] = {}
    read: dict[str, Path] = {}
    for path in sorted(
        paths, key=lambda each: (*SUFFIXES, each.suffix).index("" if each.name in known else each.suffix)
    ):
        parts = path.name.split(".")
        names = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
        name = next((each for each in names if each in known), "")
        ending = path.name[len(name) :] if name else path.suffix
        if not path.exists():
            found[path] = "found a link to nothing, expected a file"
        elif name and ending not in SUFFIXES:
            if name not in read:
                found[path] = f"Ansible reads no file with this ending; expected {name}.yml"
        elif name and name in read:
            found[path] = f"Ansible reads {read[name].name} in place of it; keep one of the two"
        elif name and path.is_dir() and not any(each.suffix in SUFFIXES for each in path.glob("[!.]*")):
            found[path] = "found a directory without a file that Ansible reads, expected one, or a file of this name"
        if path.exists() and ending in SUFFIXES:
            read.setdefault(name, path)
    return found
