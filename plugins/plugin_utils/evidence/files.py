# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the files of evidence on the controller: the bundled ones, and those of the site's own directories."""

import functools
from pathlib import Path
from typing import Sequence

from ..common.places import CATALOG
from ..common.yaml import UnreadableError, read_yaml
from .document import Evidence, EvidenceError, read_document

BUNDLED = CATALOG / "evidence"
VARIABLE = "evidence_path"
SUFFIXES = (".yml", ".yaml")


def load_evidence(directories: Sequence[str] = ()) -> list[Evidence]:
    """Return all evidence, the site's before the bundled; a site's file replaces the bundled one of the same name.

    Read once per process. Raises EvidenceError, which names the file, and evidence_path where a directory is missing.
    """
    found: dict[str, Evidence] = {}
    for directory in directories:
        if not Path(directory).is_dir():
            raise EvidenceError(f"{VARIABLE}: {directory} is not a directory on the controller")
    for place in (*directories, str(BUNDLED)):
        for evidence in _read_directory(place):
            found.setdefault(evidence.name, evidence)
    return list(found.values())


@functools.lru_cache(maxsize=None)
def _read_directory(directory: str) -> tuple[Evidence, ...]:
    top = Path(directory)
    return tuple(_read(path, top) for path in sorted(top.rglob("*")) if path.suffix in SUFFIXES and path.is_file())


def _read(path: Path, top: Path) -> Evidence:
    try:
        document = read_yaml(path)
    except UnreadableError as exc:
        raise EvidenceError(str(exc)) from exc
    name = path.relative_to(top)
    return read_document(document, str(name.with_name(name.name[: -len(path.suffix)])), str(path))
