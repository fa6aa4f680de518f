# SPDX-License-Identifier: GPL-3.0-or-later
"""Walk and remove directories that another user fills, as deep as that user likes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from typing import Iterator, NamedTuple

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
        return _kinds_of(descriptor)
    finally:
        os.close(descriptor)


def _kinds_of(descriptor: int) -> dict[str, bool]:
    with os.scandir(descriptor) as found:
        return {entry.name: entry.is_dir(follow_symlinks=False) for entry in found}


def remove_tree(path: str, ignore_errors: bool = False) -> None:
    """Remove a directory, however deep another user has made it, whatever that user moves meanwhile; of a link, itself.

    Nothing is removed where something is mounted in it, such as a directory of other hosts, and nothing of a mount that
    is moved into it later. With ``ignore_errors``, what cannot be removed remains. Raises OSError.
    """
    try:
        check_unmounted(path)
        _Removal(path, ignore_errors).run()
    except OSError:
        if not ignore_errors:
            raise


class _Level(NamedTuple):
    """A directory on the way from the top to the present one: its name, its stat, the directories left in it."""

    name: str
    found: os.stat_result
    left: list[str]


class _Removal:
    """One open directory, the present one: shutil.rmtree opens each level, calls itself, and enters mounts."""

    def __init__(self, path: str, ignore_errors: bool) -> None:
        top, name = os.path.split(path.rstrip("/"))
        # The directories above may give no right to list them.
        self._directory = os.open(top or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._levels = [_Level(top, os.fstat(self._directory), [name])]
        self._ignore_errors = ignore_errors

    def run(self) -> None:
        """Remove the tree. Raises OSError."""
        try:
            mount = _mount_of(self._directory)
            while len(self._levels) > 1 or self._levels[0].left:
                if not self._levels[-1].left:
                    self._leave()
                elif self._enter(self._levels[-1].left.pop()):
                    if _mount_of(self._directory) != mount:
                        raise self._error(errno.EBUSY, "it was mounted during the removal, or moved here; unmount it")
                    self._remove_files()
        finally:
            os.close(self._directory)

    def _enter(self, name: str) -> bool:
        with self._tolerated(name):
            try:
                self._open(name)
            except NotADirectoryError:
                # Its user has put a link or a file there.
                os.unlink(name, dir_fd=self._directory)
                return False
            self._levels.append(_Level(name, os.fstat(self._directory), []))
            return True
        return False

    def _remove_files(self) -> None:
        found: dict[str, bool] = {}
        with self._tolerated("."):
            found = _kinds_of(self._directory)
        for name, is_directory in found.items():
            if is_directory:
                self._levels[-1].left.append(name)
                continue
            with self._tolerated(name):
                os.unlink(name, dir_fd=self._directory)

    def _leave(self) -> None:
        self._open("..", os.O_PATH)
        name = self._levels.pop().name
        if not os.path.samestat(os.fstat(self._directory), self._levels[-1].found):
            raise self._error(errno.EBUSY, "it was moved during the removal; run this again", name)
        with self._tolerated(name):
            os.rmdir(name, dir_fd=self._directory)

    def _open(self, name: str, access: int = os.O_RDONLY) -> None:
        flags = access | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        found = os.open(name, flags, dir_fd=self._directory)
        os.close(self._directory)
        self._directory = found

    @contextlib.contextmanager
    def _tolerated(self, name: str) -> Iterator[None]:
        """Ignore errors where that is requested, and what the user has removed meanwhile; others get the whole path."""
        try:
            yield
        except OSError as exc:
            is_gone = exc.errno == errno.ENOENT and len(self._levels) > 1
            if not is_gone and not self._ignore_errors:
                raise self._error(exc.errno, exc.strerror or str(exc), name) from exc

    def _error(self, number: int | None, problem: str, *name: str) -> OSError:
        return OSError(number, problem, os.path.join(*(level.name for level in self._levels), *name))


def _mount_of(descriptor: int) -> str:
    """Return the number of the mount through which a file was opened; st_dev is the same for bind mounts."""
    with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
        found = re.search(r"^mnt_id:\t(\d+)$", file.read(), re.MULTILINE)
    if not found:
        raise OSError(errno.EIO, "the kernel names no mount", f"/proc/self/fdinfo/{descriptor}")
    return found[1]
