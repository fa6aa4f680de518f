# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk and remove directories that another user fills, as deep as that user likes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import Iterator

from .mounts_host import check_unmounted


def walk_tree(top: str, place: str = "") -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what os.walk yields, however deep another user has made the directories; a link to one is a file.

    The walk begins at ``place`` below the top, where that is given. os.walk calls itself up to Python 3.11. What lies
    behind the kernel's longest path is left out. No link below the top is followed, neither on the way to the place
    nor where a directory becomes one meanwhile. Its owner may still exchange what was yielded: open it with
    ForeignDirectory. Raises OSError where /proc is missing, which says where a directory is.
    """
    os.stat("/proc/self/fd")
    real = os.path.realpath(top)
    if place:
        top, real = os.path.join(top, place), os.path.join(real, place)
    waiting = [""]
    while waiting:
        name = waiting.pop()
        directory = os.path.join(top, name) if name else top
        try:
            kinds = _kinds_in(directory, os.path.join(real, name) if name else real)
        except OSError:
            continue
        below = [each for each, is_directory in kinds.items() if is_directory]
        yield directory, below, [each for each in kinds if not kinds[each]]
        waiting += [os.path.join(name, each) for each in below]


def _kinds_in(directory: str, real: str) -> dict[str, bool]:
    """Return the names in the directory ``real``, and whether each is one itself. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # What the kernel has opened, whatever the path was when it was put together.
        if os.readlink(f"/proc/self/fd/{descriptor}") != real:
            raise NotADirectoryError(errno.ENOTDIR, "a link leads to it", directory)
        with os.scandir(descriptor) as found:
            return {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}
    finally:
        os.close(descriptor)


def remove_tree(path: str, ignore_errors: bool = False) -> None:
    """Remove a directory, however deep another user has made it. shutil.rmtree calls itself and opens each level.

    Nothing is removed where something is mounted in it, such as a directory of other hosts. Raises OSError.
    """
    try:
        check_unmounted(path)
    except OSError:
        if ignore_errors:
            return
        raise
    try:
        shutil.rmtree(path)
        return
    except RecursionError:
        pass
    except OSError as exc:
        if exc.errno != errno.EMFILE and not ignore_errors:
            raise
        if not os.path.lexists(path):
            return
    words = ["rm", "--recursive", "--force", "--one-file-system", "--", path]
    done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode and not ignore_errors:
        raise OSError(errno.ENOTEMPTY, done.stderr.decode("utf-8", "replace").strip()[-200:], path)
