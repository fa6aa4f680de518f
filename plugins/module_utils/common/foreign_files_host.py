# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write files in a directory that another user owns, such as /run/vllm/NAME: the only module that does this.

That user may put anything there at any time: a link to a file of root, a FIFO that blocks its reader, a directory, a
file without end. So a directory is opened once, without following links, and each file relative to it: a link is
refused, nothing blocks, only regular files count, and a read has a bound.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import IO, Iterator

# Marks, tokens and reasons are short.
MAX_BYTES = 64 * 1024
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ForeignDirectory:
    """A directory that another user owns. The directory of ``path`` itself must belong to root or this user.

    ``names`` are directories below ``path`` that the other user could have replaced by links. All methods raise
    OSError unless they say otherwise.
    """

    def __init__(self, path: str, *names: str) -> None:
        self.path, self._names = path, names

    def read(self, name: str, limit: int = MAX_BYTES, owner: int | None = None) -> bytes:
        """Return the first ``limit`` bytes of a regular file; ``owner`` is the only user whose file counts."""
        with self._opened() as directory, _regular(name, os.O_RDONLY, directory) as file:
            if owner is not None and os.fstat(file).st_uid != owner:
                raise PermissionError(errno.EPERM, f"belongs to another user than {owner}", name)
            return os.read(file, min(limit, os.fstat(file).st_size))

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        """Open a regular file to read it."""
        with self._opened() as directory, _regular(name, os.O_RDONLY, directory) as descriptor, open(
            descriptor, "rb", closefd=False
        ) as file:
            yield file

    def text(self, name: str, limit: int = MAX_BYTES, owner: int | None = None) -> str:
        """Return the text of a file, empty where it cannot be read. Raises nothing."""
        try:
            return self.read(name, limit, owner).decode("utf-8", "replace")
        except OSError:
            return ""

    def has(self, name: str) -> bool:
        """Return whether there is a regular file. Raises nothing."""
        try:
            with self._opened() as directory:
                return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def modified_at(self, name: str) -> float:
        """Return the second of the last change of a file, which is not followed."""
        with self._opened() as directory:
            return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime

    def exists(self) -> bool:
        """Return whether the directory is there. Raises nothing."""
        with contextlib.suppress(OSError), self._opened():
            return True
        return False

    def touch(self, name: str) -> None:
        """Make an empty file, or set the time of one that is there."""
        with self._opened() as directory, _regular(name, os.O_WRONLY | os.O_CREAT, directory) as file:
            os.utime(file)

    def create(self, name: str, text: str, mode: int, gid: int = -1) -> None:
        """Write a new file for a group; what is there is neither followed nor kept. Raises FileExistsError too."""
        with self._opened() as directory:
            _write(os.open(name, _NEW, 0o600, dir_fd=directory), text, mode, gid)

    def replace(
        self, name: str, text: str, mode: int = 0o644, durable: bool = False, times: os.stat_result | None = None
    ) -> None:
        """Write a file under its final name in one step, with other ``times`` where some are given."""
        beside = f".{name}.{os.urandom(6).hex()}.partial"
        with self._opened() as directory:
            try:
                _write(os.open(beside, _NEW, 0o600, dir_fd=directory), text, mode, durable=durable, times=times)
                os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
                if durable:
                    os.fsync(directory)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(beside, dir_fd=directory)
                raise

    def rename(self, name: str, new: str) -> None:
        """Give a regular file another name."""
        with self._opened() as directory:
            if not stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", name)
            os.rename(name, new, src_dir_fd=directory, dst_dir_fd=directory)

    def remove(self, name: str) -> None:
        """Remove a file, link or FIFO, which may be missing."""
        with contextlib.suppress(FileNotFoundError), self._opened() as directory:
            os.unlink(name, dir_fd=directory)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY | _SAFE
        descriptor = os.open(self.path, flags)
        try:
            for name in self._names:
                inner = os.open(name, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _regular(name: str, flags: int, directory: int) -> Iterator[int]:
    descriptor = os.open(name, flags | _SAFE, 0o644, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(
    descriptor: int,
    text: str,
    mode: int,
    gid: int = -1,
    durable: bool = False,
    times: os.stat_result | None = None,
) -> None:
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if gid >= 0:
            os.fchown(file.fileno(), -1, gid)
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        if times:
            os.utime(file.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
        if durable:
            os.fsync(file.fileno())
