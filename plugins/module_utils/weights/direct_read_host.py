# SPDX-License-Identifier: GPL-3.0-or-later
"""Read large files from the disk past the page cache, so that cached files of services stay cached."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import mmap
import os
import stat
from typing import Callable

CHUNK = 1024 * 1024


def direct_sha256(path: str, size: int, took: Callable[[int], None]) -> tuple[str, os.stat_result]:
    """Return sha256 and stat of a file; ``took`` is called with each number of bytes read.

    A file of another ``size`` is not read: its bytes and that size are the answer. Raises OSError.
    """
    descriptor = _open_direct(path)
    digest, offset, buffer = hashlib.sha256(), 0, mmap.mmap(-1, CHUNK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if found.st_size != size:
            return f"a file of {found.st_size} bytes instead of {size}", found
        while True:
            count = _read_at(descriptor, buffer, offset) if offset <= size else 0
            if not count:
                return digest.hexdigest(), os.fstat(descriptor)
            with memoryview(buffer) as view:
                digest.update(view[:count])
            offset += count
            took(count)
    finally:
        os.close(descriptor)


def _open_direct(path: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_DIRECT)
    except OSError as exc:
        if exc.errno != errno.EINVAL:
            raise
    # This file system can only read through the cache.
    return os.open(path, flags)


def _read_at(descriptor: int, buffer: mmap.mmap, offset: int) -> int:
    """Read up to the buffer's size and return how much it was. Raises OSError."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        count = os.preadv(descriptor, [buffer], offset)
    except OSError as exc:
        if exc.errno != errno.EINVAL or not flags & os.O_DIRECT:
            raise
        # The device has an unusual block size.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return _read_at(descriptor, buffer, offset)
    if not flags & os.O_DIRECT:
        os.posix_fadvise(descriptor, offset, count, os.POSIX_FADV_DONTNEED)
    return count
