# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how fast a file system reads large files sequentially, bypassing the page cache where it can."""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Iterator

from ..common.foreign_files_host import ForeignDirectory
from ..common.foreign_trees_host import walk_tree
from ..weights.owners_host import Owners

BLOCK = 16 << 20
READERS = 4
# Without O_DIRECT, reads may come from the page cache: such a figure is marked.
SMALLEST = 256 << 20
RESERVE = 1 << 30


class StorageError(Exception):
    """The file system cannot be measured; the message is the whole sentence."""


@dataclass(frozen=True)
class Reading:
    """A measurement: GB/s (10^9 bytes), bytes and seconds, the file, and whether the page cache was bypassed."""

    gb_per_s: float
    bytes: int
    seconds: float
    file: str
    direct: bool
    made: bool


def measure_reads(directory: str, seconds: float, size: int) -> Reading:
    """Read the largest file below a directory for at most ``seconds``, with READERS threads.

    Without a file of SMALLEST bytes, one of ``size`` bytes is created and removed again. Raises StorageError.
    """
    if not os.path.isdir(directory):
        raise StorageError(f"{directory} is not a directory on this host; name another one with accept_storage_dir")
    path = largest_file(directory)
    if path:
        return _read(path, seconds, made=False)
    with _made_file(directory, size) as made:
        return _read(made, seconds, made=True)


def largest_file(directory: str) -> str:
    """Return the largest file below a directory of at least SMALLEST bytes, empty where there is none.

    A file with holes is left out, because nothing is read for them, and what another user could exchange.
    """
    found, owners = ("", SMALLEST - 1), Owners(directory)
    for top, _directories, names in walk_tree(directory):
        for name in names:
            path = os.path.join(top, name)
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if status.st_size > found[1] and not owners.find_foreign(top, [name]) and _is_whole(top, name):
                    found = (path, status.st_size)
    return found[0]


def _is_whole(top: str, name: str) -> bool:
    """Return whether a file has no holes. One that its file system compresses has fewer blocks, and none either."""
    with ForeignDirectory(os.path.realpath(top)).opened(name) as file:
        return os.lseek(file.fileno(), 0, os.SEEK_HOLE) >= os.fstat(file.fileno()).st_size


@contextlib.contextmanager
def _made_file(directory: str, size: int) -> Iterator[str]:
    free = shutil.disk_usage(directory).free
    if free < size + RESERVE:
        raise StorageError(
            f"{directory} has {free / 1e9:.1f} GB free, but the test needs a file of {size / 1e9:.1f} GB; "
            "free some space, or set a smaller accept_storage_bytes"
        )
    try:
        handle, path = tempfile.mkstemp(prefix=".baremetal-accept-", dir=directory)
    except OSError as exc:
        raise StorageError(f"{directory}: cannot create a file there: {exc.strerror}") from exc
    try:
        _fill(handle, size)
        yield path
    except OSError as exc:
        raise StorageError(f"{directory}: {exc.strerror} while the test file was written") from exc
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _fill(handle: int, size: int) -> None:
    # Random, so that no file system compresses it or leaves holes.
    block = os.urandom(1 << 20) * 16
    try:
        for _number in range(max(1, size // len(block))):
            os.write(handle, block)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _bypass_cache(file: int) -> bool:
    """Return whether reads of a file bypass the page cache now; where they do not, its pages are dropped once."""
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return False
    return True


class _Blocks:
    """The blocks of a file, handed out to threads one after another until the time is over."""

    def __init__(self, size: int, seconds: float) -> None:
        self._lock, self._next, self._size = threading.Lock(), 0, size
        self._end = time.monotonic() + seconds
        self.read = 0
        self.errors: list[OSError] = []

    def take(self) -> int:
        """Return the offset of the next block, -1 when nothing is left or the time is over."""
        with self._lock:
            if self._next >= self._size or time.monotonic() > self._end or self.errors:
                return -1
            self._next += BLOCK
            return self._next - BLOCK

    def add(self, count: int) -> None:
        with self._lock:
            self.read += count


def _read(path: str, seconds: float, made: bool) -> Reading:
    directory, name = os.path.split(path)
    try:
        with ForeignDirectory(os.path.realpath(directory)).opened(name) as file:
            return _measure(file.fileno(), path, seconds, made)
    except OSError as exc:
        raise StorageError(f"{path} cannot be read: {exc.strerror}") from exc


def _measure(handle: int, path: str, seconds: float, made: bool) -> Reading:
    """Read an open file with all threads. Raises OSError."""
    direct = _bypass_cache(handle)
    blocks = _Blocks(os.fstat(handle).st_size, seconds)
    begin = time.monotonic()
    threads = [threading.Thread(target=_read_blocks, args=(handle, blocks)) for _number in range(READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.monotonic() - begin
    if blocks.errors:
        raise blocks.errors[0]
    return Reading(round(blocks.read / taken / 1e9, 2), blocks.read, round(taken, 2), path, direct, made)


def _read_blocks(handle: int, blocks: _Blocks) -> None:
    # Page-aligned memory, which O_DIRECT needs.
    with contextlib.closing(mmap.mmap(-1, BLOCK)) as buffer:
        while True:
            offset = blocks.take()
            if offset < 0:
                return
            try:
                blocks.add(os.preadv(handle, [buffer], offset))
            except OSError as exc:
                blocks.errors.append(exc)
                return
