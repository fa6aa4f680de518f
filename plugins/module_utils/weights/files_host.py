# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories of a model on a host: stamp, partial directory, publication."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import dataclass, field
from typing import Any, Collection, Mapping

from ..common.files_host import sha256_of, sync_directory
from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_json import load_json
from ..common.foreign_trees_host import remove_tree, walk_tree
from ..common.mounts_host import check_unmounted
from ..transfer.partial_file import make_directory
from .manifest import Manifest, ManifestFile, WeightsError, partial_directory
from .plan import STAMP_NAME, FileStatus, make_stamp

# Weights may have come with a disk, and then belong to somebody else. A stamp of 20,000 files has 4 MB.
MAX_STAMP_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class ModelState:
    """A model on the host: its directory, its correct and its other files, and whether its stamp is correct.

    ``seen`` is what stat reported for the files at that moment.
    """

    manifest: Manifest
    directory: str
    right: tuple[ManifestFile, ...]
    missing: tuple[ManifestFile, ...]
    stamp_current: bool
    seen: Mapping[str, FileStatus] = field(default_factory=dict)
    # The names of files that another user can change: each run reads them again.
    foreign: Collection[str] = ()

    @property
    def partial(self) -> str:
        """The partial directory beside it."""
        return partial_directory(self.directory)

    @property
    def changed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.missing) or not self.stamp_current


def link_verified_files(state: ModelState) -> None:
    """Link the correct files of the published directory into the partial one."""
    parent = os.path.dirname(state.partial)
    make_directory(state.partial, parent)
    for file in state.right:
        dest = os.path.join(state.partial, file.name)
        make_directory(os.path.dirname(dest), parent)
        if os.path.lexists(dest):
            os.unlink(dest)
        os.link(os.path.join(state.directory, file.name), dest)


def remove_unlisted_files(state: ModelState) -> None:
    """Remove files that the manifest does not name, such as a partial file of another manifest."""
    wanted = {file.name for file in state.manifest.files}
    for parent, _directories, names in walk_tree(state.partial):
        below = "" if parent == state.partial else os.path.relpath(parent, state.partial)
        for name in names:
            if os.path.join(below, name) not in wanted:
                ForeignDirectory(state.partial, *filter(None, below.split(os.sep))).remove(name)


def publish_model(state: ModelState) -> None:
    """Replace the published directory, which nothing uses, by the partial one.

    A new revision is one rename. A repair of a published one is two: REVISION to .REVISION.old, then .REVISION.partial
    to REVISION. Between the two the name is missing, and the complete partial directory is there for the next run.
    Raises MountedError before the first where something is mounted in what would be replaced.
    """
    parent, revision = os.path.split(state.directory)
    old = os.path.join(parent, f".{revision}.old")
    is_repair = os.path.isdir(state.directory)
    for doomed in (old, state.directory) if is_repair else ():
        check_unmounted(doomed)
    remove_tree(old, ignore_errors=True)
    for below, _directories, _names in walk_tree(state.partial):
        sync_directory(below)
    if is_repair:
        os.rename(state.directory, old)
    os.rename(state.partial, state.directory)
    sync_directory(parent)
    remove_tree(old, ignore_errors=True)


def stat_files(directory: str, manifest: Manifest) -> dict[str, FileStatus]:
    seen = {}
    for file in manifest.files:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            seen[file.name] = file_status(os.stat(os.path.join(directory, file.name)))
    return seen


def file_status(found: os.stat_result) -> FileStatus:
    """Return the entry of a file in a stamp."""
    return FileStatus(found.st_size, found.st_mtime_ns, found.st_ino)


def confirm_verified_files(state: ModelState, verified: dict[str, FileStatus], touched: Mapping[str, int]) -> None:
    """Update ``verified`` with the present files of the partial directory; a changed file is read again.

    ``touched`` is when a file of this run was last changed in any way, which no program can set back.
    Raises WeightsError for a file that another process has damaged since it was verified; the file is removed.
    """
    now = stat_files(state.partial, state.manifest)
    for file in state.manifest.files:
        path = os.path.join(state.partial, file.name)
        is_same = now.get(file.name) == verified.get(file.name) and not os.path.islink(path)
        if is_same and touched.get(file.name) in (None, os.lstat(path).st_ctime_ns):
            continue
        if os.path.islink(path) or file.name not in now or not has_expected_hash(path, file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            raise WeightsError(
                f"{path}: another process has changed it since it was verified; find out which, then run again"
            )
        verified[file.name] = now[file.name]


def has_expected_hash(path: str, file: ManifestFile) -> bool:
    """Whether a file has the hash of its manifest; false if the disk can no longer read it."""
    try:
        return sha256_of(path, file.size) == file.sha256
    except OSError as exc:
        if exc.errno != errno.EIO:
            raise
        return False


def read_stamp(directory: str) -> dict[str, Any]:
    """Return the stamp of a directory; empty if it is missing or unreadable."""
    try:
        stamp = load_json(ForeignDirectory(directory).read(STAMP_NAME, MAX_STAMP_BYTES))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(directory: str, manifest: Manifest, verified: Mapping[str, FileStatus]) -> None:
    """Record the size, time and inode that each file had when it was verified. Raises OSError."""
    stamp = make_stamp(manifest, verified)
    ForeignDirectory(directory).replace(STAMP_NAME, json.dumps(stamp, indent=1, sort_keys=True), durable=True)
