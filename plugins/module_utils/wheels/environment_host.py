# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a virtual environment on this host with its lock and with the records of its packages.

Every file must be there in its recorded size. A file that has been changed since the environment was verified, by its
ctime, must have its recorded hash too. That takes tenths of a second for tens of thousands of files.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import json
import os
from typing import Dict, Iterable, Set, Tuple

from ..common.files_host import publish
from ..common.foreign_trees_host import remove_tree
from ..common.mounts_host import check_unmounted
from .index import normalise_name
from .venv import Pin

# Written when an environment is complete: the deviations at that time. Files may have changed since its mtime.
VERIFIED = "verified.json"
# Suffix of a damaged environment that a new one replaces.
DAMAGED = "damaged"
_INFO = ".dist-info"
# If several packages have the same path, the file of any of them is accepted.
_Allowed = Dict[str, Set[Tuple[str, str]]]


def find_damage(path: str, pins: Iterable[Pin]) -> list[str]:
    """Return what is wrong with an environment, as clauses; nothing for a healthy one."""
    known, since = _verified(path)
    return [text for text in _differences(path, pins, since) if text not in known]


def mark_verified(path: str, pins: Iterable[Pin]) -> None:
    """Record that an environment is complete, with the deviations from the records of its packages."""
    publish(os.path.join(path, VERIFIED), json.dumps(_differences(path, pins, None)))


def set_aside(path: str) -> None:
    """Rename a damaged environment to free its name for the new one; processes keep their open files."""
    directory, name = os.path.split(path)
    aside = os.path.join(directory, f".{name}.{DAMAGED}")
    if os.path.isdir(aside):
        remove_tree(aside)
    if os.path.isdir(path):
        check_unmounted(path)
        os.rename(path, aside)


def _verified(path: str) -> tuple[set[str], float | None]:
    """Return the deviations when the environment was complete, and that time; None if it was not recorded."""
    place = os.path.join(path, VERIFIED)
    try:
        with open(place, encoding="utf-8") as file:
            return set(json.load(file)), os.stat(place).st_ctime
    except (OSError, ValueError, TypeError):
        return set(), None


def _differences(path: str, pins: Iterable[Pin], since: float | None) -> list[str]:
    found = [] if os.access(os.path.join(path, "bin", "python"), os.X_OK) else ["bin/python does not run"]
    allowed: _Allowed = {}
    installed = {}
    for packages in glob.glob(os.path.join(glob.escape(path), "lib", "python3*", "site-packages")):
        for entry in sorted(os.listdir(packages)):
            if entry.endswith(_INFO):
                name, _dash, version = entry[: -len(_INFO)].partition("-")
                installed[normalise_name(name)] = version
                if not _read_record(packages, entry, allowed):
                    found.append(f"{name} has no record of its files")
    found += _wrong_packages(pins, installed)
    for place, files in allowed.items():
        fault = _fault_of(place, files, since)
        if fault:
            found.append(f"{os.path.relpath(place, path)} {fault}")
    return found


def _wrong_packages(pins: Iterable[Pin], installed: dict[str, str]) -> list[str]:
    """Return the packages of the lock that are missing or have another version; a marker may exclude one here."""
    found = []
    for pin in pins:
        version = installed.get(pin.name)
        if version is None and not pin.marker:
            found.append(f"the package {pin.name} is missing")
        elif version is not None and version.replace("_", "-") != pin.version.replace("_", "-"):
            found.append(f"the package {pin.name} has version {version}, the lock has {pin.version}")
    return found


def _read_record(packages: str, info: str, allowed: _Allowed) -> bool:
    """Add the files of a package's RECORD; return whether it has one."""
    try:
        with open(os.path.join(packages, info, "RECORD"), encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                if len(row) >= 3 and not row[0].endswith(("/", ".pyc")):
                    place = f"{packages}/{row[0]}"
                    if ".." in place:
                        place = os.path.normpath(place)
                    allowed.setdefault(place, set()).add((row[1], row[2]))
    except (OSError, ValueError, csv.Error):
        return False
    return True


def _fault_of(place: str, allowed: set[tuple[str, str]], since: float | None) -> str:
    """Return the fault of a file, as a clause; empty if it matches its record."""
    try:
        found = os.stat(place)
    except OSError:
        return "is missing"
    sizes = {size for _hash, size in allowed}
    if "" not in sizes and str(found.st_size) not in sizes:
        return f"has {found.st_size} bytes, expected {' or '.join(sorted(sizes))}"
    if since is None or found.st_ctime <= since:
        return ""
    return "" if _has_hash(place, {digest for digest, _size in allowed}) else "has another content"


def _has_hash(place: str, allowed: set[str]) -> bool:
    """Return whether a file has one of the hashes of a RECORD; true where one of them names no sha256."""
    digests = [each.partition("=") for each in allowed]
    if any(kind != "sha256" for kind, _equals, _value in digests):
        return True
    digest = hashlib.sha256()
    with open(place, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() in {value for _k, _e, value in digests}
