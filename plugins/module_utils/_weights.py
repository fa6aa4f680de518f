# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pinned manifest x what lies on a host -> what has to be fetched. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

# Written into each directory; its form. A stamp of another version is as good as none.
STAMP_NAME = ".verified.json"
STAMP_VERSION = 1

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
# No segment starts with a dot: no "..", and nothing that could be taken for a stamp or a partial file.
_FILE_NAME = re.compile(r"\w[\w.+-]*(/\w[\w.+-]*)*", re.ASCII)


class WeightsError(ValueError):
    """Weights cannot be had or a manifest is wrong; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class File:
    """A file of a manifest: its path below the revision's directory, its bytes, its sha256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """One revision of a repository and its files, sorted by name."""

    repository: str
    revision: str
    files: tuple[File, ...]

    @property
    def path(self) -> str:
        """The directory below a root of weights, on a host as on a mirror."""
        return f"{self.repository}/{self.revision}"


@dataclass(frozen=True)
class Seen:
    """What stat says of a file: bytes, time of the last change in nanoseconds, inode."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Plan:
    """The files that are known to be right, those to be hashed before they can be, and those to be fetched."""

    keep: tuple[File, ...]
    check: tuple[File, ...]
    fetch: tuple[File, ...]


def parse(data: Any) -> Manifest:
    """Return the manifest that ``data`` describes. Raises WeightsError naming the repository and the key."""
    if not isinstance(data, Mapping):
        raise WeightsError(
            f"manifest: found {type(data).__name__}, expected a mapping with repository, revision, files"
        )
    for key in ("repository", "revision", "files"):
        if key not in data:
            raise WeightsError(f"manifest of {data.get('repository', 'an unnamed model')}: {key!r} is missing")
    unknown = sorted(set(data) - {"repository", "revision", "files"})
    if unknown:
        raise WeightsError(f"manifest of {data['repository']}: unknown key {unknown[0]!r}")
    repository = _text(data["repository"], _REPOSITORY, "manifest: repository", "<organisation>/<name>")
    where = f"manifest of {repository}"
    revision = _text(data["revision"], _REVISION, f"{where}: revision", "40 hexadecimal digits (a branch may move)")
    if not isinstance(data["files"], Mapping) or not data["files"]:
        raise WeightsError(f"{where}: files: found {data['files']!r}, expected a mapping of at least one file")
    files = tuple(
        _file(name, entry, where) for name, entry in sorted(data["files"].items(), key=lambda item: str(item[0]))
    )
    return Manifest(repository, revision, files)


def _file(name: Any, entry: Any, where: str) -> File:
    name = _text(name, _FILE_NAME, f"{where}: files", "a relative path without '..' or leading dots")
    if not isinstance(entry, Mapping) or set(entry) != {"size", "sha256"}:
        raise WeightsError(f"{where}: files.{name}: found {entry!r}, expected the keys size and sha256")
    size = entry["size"]
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise WeightsError(f"{where}: files.{name}.size: found {size!r}, expected a number of bytes")
    return File(name, size, _text(entry["sha256"], _SHA256, f"{where}: files.{name}.sha256", "64 hexadecimal digits"))


def _text(value: Any, pattern: re.Pattern[str], where: str, expected: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise WeightsError(f"{where}: found {value!r}, expected {expected}")
    return value


def check_unique(manifests: Iterable[Manifest]) -> None:
    """Raise WeightsError when one revision is described twice."""
    seen: dict[str, Manifest] = {}
    for manifest in manifests:
        if seen.setdefault(manifest.path, manifest) != manifest:
            raise WeightsError(f"{manifest.repository}: two manifests of revision {manifest.revision} differ; drop one")


def plan(manifest: Manifest, seen: Mapping[str, Seen], stamp: Mapping[str, Any], full: bool = False) -> Plan:
    """Return what to do for a directory of which ``seen`` (by file name) and its stamp are known.

    A file that is as the stamp says is trusted without being read, unless ``full``.
    """
    trusted = {} if full else stamped(stamp)
    keep: list[File] = []
    check: list[File] = []
    fetch: list[File] = []
    for file in manifest.files:
        found = seen.get(file.name)
        if found is None or found.size != file.size:
            fetch.append(file)
        elif trusted.get(file.name) == (found, file.sha256):
            keep.append(file)
        else:
            check.append(file)
    return Plan(tuple(keep), tuple(check), tuple(fetch))


def stamped(stamp: Mapping[str, Any]) -> dict[str, tuple[Seen, str]]:
    """Return stat and sha256 of each file that a stamp vouches for; none for a stamp that is not one."""
    if stamp.get("version") != STAMP_VERSION:
        return {}
    try:
        return {
            name: (Seen(entry["size"], entry["mtime_ns"], entry["inode"]), entry["sha256"])
            for name, entry in stamp["files"].items()
        }
    except (AttributeError, KeyError, TypeError):
        return {}


def make_stamp(manifest: Manifest, seen: Mapping[str, Seen]) -> dict[str, Any]:
    """Return the stamp of a directory whose files have just been verified."""
    return {
        "version": STAMP_VERSION,
        "files": {
            file.name: {
                "size": seen[file.name].size,
                "mtime_ns": seen[file.name].mtime_ns,
                "inode": seen[file.name].inode,
                "sha256": file.sha256,
            }
            for file in manifest.files
        },
    }


def check_space(file_system: str, needed: int, free: int, models: Iterable[str]) -> None:
    """Raise WeightsError when a file system (by its mount point) has fewer bytes free than needed."""
    if needed > free:
        raise WeightsError(
            f"{file_system}: {needed} bytes ({gib(needed)}) are needed for {', '.join(models)}, "
            f"{free} bytes ({gib(free)}) are free; make room or let weights_root name a larger file system"
        )


def gib(count: int) -> str:
    """Return bytes as GiB for people."""
    return f"{count / 1024**3:.2f} GiB"


def blocks(size: int, block: int) -> int:
    """Return the bytes that a file of ``size`` bytes takes in blocks of ``block`` bytes."""
    return -(-size // block) * block


def listing(files: Iterable[File]) -> str:
    """Return files as sha256sum prints them: a side of a diff."""
    return "".join(f"{file.sha256}  {file.name}\n" for file in files)
