# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a download: a pinned manifest and the files of a host give the files to fetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Iterable, Mapping

from .manifest import Manifest, ManifestFile, WeightsError, parse_file

# The file in each directory, and the version of its format. A stamp of another version counts as missing.
STAMP_NAME = ".verified.json"
STAMP_VERSION = 1


@dataclass(frozen=True)
class FileStatus:
    """The stat of a file: bytes, time of the last change in nanoseconds, inode."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class FetchPlan:
    """The files that are known to be correct, those to hash first, and those to fetch."""

    keep: tuple[ManifestFile, ...]
    check: tuple[ManifestFile, ...]
    fetch: tuple[ManifestFile, ...]


def plan_fetch(
    manifest: Manifest,
    seen: Mapping[str, FileStatus],
    stamp: Mapping[str, Any],
    full: bool = False,
    foreign: Collection[str] = (),
) -> FetchPlan:
    """Return what to do for a directory, from ``seen`` (stat by file name) and its stamp.

    A file that matches the stamp is trusted without being read, unless ``full`` or another user can change it or the
    stamp: ``foreign`` has the names of such files.
    """
    trusted = {} if full or STAMP_NAME in foreign else parse_stamp(stamp)
    keep: list[ManifestFile] = []
    check: list[ManifestFile] = []
    fetch: list[ManifestFile] = []
    for file in manifest.files:
        found = seen.get(file.name)
        if found is None or found.size != file.size:
            fetch.append(file)
        elif trusted.get(file.name) == (found, file.sha256) and file.name not in foreign:
            keep.append(file)
        else:
            check.append(file)
    return FetchPlan(tuple(keep), tuple(check), tuple(fetch))


def parse_stamp(stamp: Mapping[str, Any]) -> dict[str, tuple[FileStatus, str]]:
    """Return stat and sha256 of each file in a stamp; empty for an invalid stamp, such as one that names a file which
    no manifest could name."""
    if stamp.get("version") != STAMP_VERSION:
        return {}
    found = {}
    try:
        for name, entry in stamp["files"].items():
            file = parse_file(name, {"size": entry["size"], "sha256": entry["sha256"]}, STAMP_NAME)
            found[name] = (FileStatus(file.size, entry["mtime_ns"], entry["inode"]), file.sha256)
    except (AttributeError, KeyError, TypeError, WeightsError):
        return {}
    return found


def make_stamp(manifest: Manifest, seen: Mapping[str, FileStatus]) -> dict[str, Any]:
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
            f"{file_system}: {needed} bytes ({format_gib(needed)}) are needed for {', '.join(models)}, "
            f"{free} bytes ({format_gib(free)}) are free; free some space, or set weights_root to a larger file system"
        )


def check_inodes(file_system: str, needed: int, free: int, models: Iterable[str]) -> None:
    """Raise WeightsError when a file system (by its mount point) has fewer inodes free than needed."""
    if needed > free:
        raise WeightsError(
            f"{file_system}: {needed} inodes are needed for {', '.join(models)}, {free} are free (df -i); remove files "
            "there, or set weights_root to another file system"
        )


def format_gib(count: int) -> str:
    """Return bytes as GiB for people."""
    return f"{count / 1024**3:.2f} GiB"


def round_up_to_blocks(size: int, block: int) -> int:
    """Return the bytes that a file of ``size`` bytes takes in blocks of ``block`` bytes."""
    return -(-size // block) * block


def list_checksums(files: Iterable[ManifestFile]) -> str:
    """Return files as sha256sum prints them: a side of a diff."""
    return "".join(f"{file.sha256}  {file.name}\n" for file in files)
