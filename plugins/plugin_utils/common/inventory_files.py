# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an inventory, as texts."""

import contextlib
from pathlib import Path
from typing import Sequence

# Directories of variables beside an inventory file.
BESIDE = ("group_vars", "host_vars")
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
