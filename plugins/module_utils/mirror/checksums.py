# SPDX-License-Identifier: GPL-3.0-or-later
"""SHA256SUMS of a carried directory, as ``sha256sum --check`` reads it: the file that a signature is made of."""

from __future__ import annotations

import hashlib
import re
from typing import Collection, Mapping

from ..wheels.index import normalise_name
from .bundle import BundleError, Files

NAME = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.asc"
# What no line names.
OWN = (NAME, SIGNATURE)

_NOTE = re.compile(r"wheels/\.[\w.+-]+\.fetched\.json|weights/.+/\.verified\.json", re.ASCII)
_PAGE = re.compile(r"simple/(?:([a-z0-9-]+)/)?index\.html", re.ASCII)
_STAMPS = "simple/.wheels.json"
_METADATA = ".metadata"
_LONGEST_LOCK = 1024
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)", re.ASCII)


def is_note(path: str) -> bool:
    """Whether it is a hidden file in which a fill notes what it has verified."""
    return bool(_NOTE.fullmatch(path))


def is_generated(path: str, signed: Collection[str], size: int) -> bool:
    """Whether it is a part of the index, which the role mirror makes of the signed wheels again at its next run.

    Or the lock of a signed model, in which a fill writes who holds it.
    """
    if path.endswith("/.lock"):
        model = path[: -len(".lock")]
        is_model = model.startswith("weights/") and model.count("/") == 3
        return is_model and size <= _LONGEST_LOCK and any(name.startswith(model) for name in signed)
    if path.endswith(f".whl{_METADATA}"):
        return path[: -len(_METADATA)] in signed
    page = _PAGE.fullmatch(path)
    if page and page[1]:
        names = (name[len("wheels/") :] for name in signed if name.startswith("wheels/"))
        return any(normalise_name(name.split("-")[0]) == page[1] for name in names)
    return bool(page) or path == _STAMPS


def render_checksums(files: Files, texts: Mapping[str, str], notes: Mapping[str, str]) -> str:
    """Return the lines of all files, of the notes of fills, and of the documents at the top, whose texts are given."""
    found = {**notes, **{path: content.sha256 for path, content in files.items()}}
    found.update({name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()})
    return "".join(f"{found[path]}  {path}\n" for path in sorted(found))


def parse_checksums(text: str, where: str) -> dict[str, str]:
    """Return the sha256 of each path. Raises BundleError that names the line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        match = _LINE.fullmatch(line)
        if not match or match[2] in found:
            expected = "a sha256, two spaces and a path that no other line has"
            raise BundleError(f"{where}, line {number}: expected {expected}")
        found[match[2]] = match[1]
    return found


def compare_lists(signed: Mapping[str, str], files: Files, documents: Mapping[str, str]) -> list[str]:
    """Return a line for each path whose signed sha256 is not that of bundle.json, or of the documents as they are.

    ``documents`` maps each file at the top, and each note of a fill, to its sha256, empty where it is missing.
    """
    listed = {**{path: content.sha256 for path, content in files.items()}, **documents}
    problems = []
    for path in sorted({*signed, *listed}):
        if path not in signed:
            problems.append(f"{path}: is not signed")
        elif not listed.get(path):
            problems.append(f"{path}: is missing" if path in listed else f"{path}: is signed, and not in bundle.json")
        elif listed[path] != signed[path]:
            problems.append(f"{path}: has sha256 {listed[path]}, signed was {signed[path]}")
    return problems
