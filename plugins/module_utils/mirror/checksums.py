# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SHA256SUMS of a carried directory, as ``sha256sum --check`` reads it: the file that a signature is made of."""

from __future__ import annotations

import hashlib
import re
from typing import Mapping

from .bundle import BundleError, Files

NAME = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.asc"

_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)", re.ASCII)


def render_checksums(files: Files, texts: Mapping[str, str]) -> str:
    """Return the lines of all files and of the documents at the top, whose texts are given by name."""
    found = {path: content.sha256 for path, content in files.items()}
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

    ``documents`` maps each file at the top to its sha256, empty where it is missing.
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
