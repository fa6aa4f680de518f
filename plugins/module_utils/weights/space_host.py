# SPDX-License-Identifier: GPL-3.0-or-later
"""Check that a host has space for weights: bytes, inodes, and a file system that can be written."""

import os
from typing import Collection, Iterable, Mapping

from ..common.files_host import existing_above
from ..common.foreign_trees_host import walk_tree
from .files_host import ModelState
from .manifest import WeightsError
from .plan import check_inodes, check_space, round_up_to_blocks


def check_room(states: Iterable[ModelState], shared: Mapping[str, Collection[str]]) -> None:
    """Raise WeightsError if a file system for models has too little space or is not writable.

    ``shared`` holds, by the model's directory, the names of files that are linked instead.
    """
    by_device: dict[int, list[ModelState]] = {}
    for state in states:
        by_device.setdefault(os.stat(existing_above(state.directory)).st_dev, []).append(state)
    for together in by_device.values():
        place = existing_above(together[0].directory)
        _check_writable(place)
        figures, names = os.statvfs(place), [state.manifest.repository for state in together]
        needed = sum(_needed_bytes(state, shared.get(state.directory, ()), figures.f_frsize) for state in together)
        check_space(_mount_point(place), needed, figures.f_bavail * figures.f_frsize, names)
        # A file system without an inode table reports 0 inodes.
        if figures.f_files:
            check_inodes(_mount_point(place), sum(_needed_inodes(state) for state in together), figures.f_favail, names)


def check_place(state: ModelState) -> None:
    """Raise WeightsError if a model cannot be published by a rename: at a mount point or a symbolic link."""
    for path in (state.directory, state.partial):
        if os.path.islink(path):
            raise WeightsError(f"{path}: found a symbolic link, expected a plain directory; remove the link")
        if os.path.ismount(path):
            raise WeightsError(
                f"{path}: found a mount point, expected a plain directory, since a model is published by a rename; "
                "unmount it, or set weights_root to a directory of that file system"
            )


def _check_writable(place: str) -> None:
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        raise WeightsError(
            f"{_mount_point(place)}: it is mounted read-only; mount it for writing (mount -o remount,rw), "
            "or set weights_root to another file system"
        )
    if not os.path.isdir(place):
        raise WeightsError(f"{place}: found a file, expected a directory; set weights_root to a directory")


def _needed_inodes(state: ModelState) -> int:
    """Return how many files and directories are still to be created: the files, their directories, stamp and lock."""
    directories = {os.path.dirname(file.name) for file in state.missing}
    return len(state.missing) + len(directories) + 6


def _needed_bytes(state: ModelState, shared: Collection[str], block: int) -> int:
    """Return the bytes that the missing files still need, without linked files and those already in partial files."""
    needed = sum(round_up_to_blocks(file.size, block) for file in state.missing if file.name not in shared)
    for parent, _directories, names in walk_tree(state.partial):
        needed -= sum(_disk_bytes(os.path.join(parent, name)) for name in names)
    return max(needed, 0)


def _disk_bytes(path: str) -> int:
    """Return the bytes of a partial file; none of one that another run, or another user, has just taken away."""
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    # A file with a second link is also in the published directory.
    return found.st_blocks * 512 if found.st_nlink == 1 else 0


def _mount_point(path: str) -> str:
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path
