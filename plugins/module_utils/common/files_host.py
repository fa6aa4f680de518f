# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files that survive a crash, and lock files between processes: the only module that does this.

A reader finds the old file or the new one, never a part, even after a crash or a power failure: the content is
written beside the file, synced, renamed over it, and the directory is synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import hashlib
import json
import os
import platform
import secrets
import time
from typing import Callable, Iterator

# A publication takes less time, because the content is in memory: an older file beside it is from a killed process.
_ABANDONED_SECONDS = 3600.0
_SUFFIX = ".partial"
# The kernel's list of 100,000 connections has 15 MiB.
MOST_TEXT = 64 << 20
_PAUSE_SECONDS = 0.05
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class LockedError(Exception):
    """Another process holds the lock; ``holder`` describes it ("process 71 of gpu-01", or "another process")."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} is locked by {holder}")
        self.path, self.holder = path, holder


def publish(path: str, data: bytes | str, mode: int = 0o644, group: str | None = None, durable: bool = True) -> None:
    """Write a complete file durably under its final name in one step; text is encoded as UTF-8.

    The file has exactly ``mode``, whatever the umask, and the group where one is given. A link at ``path`` is replaced,
    not followed. The directory must exist. ``durable`` is false for a file that is not needed after a crash: nothing
    waits for the disk then. Raises OSError, and LookupError for an unknown group; then the file at ``path`` is
    unchanged, and nothing is left beside it.
    """
    directory, name = os.path.split(path)
    _remove_abandoned(directory, name)
    beside = os.path.join(directory, f".{name[:80]}.{secrets.token_hex(6)}{_SUFFIX}")
    try:
        create(beside, data, mode, group, durable)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    if durable:
        sync_directory(directory)


def create(path: str, data: bytes | str, mode: int, group: str | None = None, durable: bool = True) -> None:
    """Write a new file and sync it; the caller makes its name durable with sync_directory. Raises FileExistsError."""
    content = data.encode() if isinstance(data, str) else data
    with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        if group is not None:
            os.chown(file.fileno(), -1, _group_id(group))
        os.fchmod(file.fileno(), mode)
        if durable:
            os.fsync(file.fileno())


def publish_once(path: str, data: str, mode: int) -> None:
    """Write a complete file as ``publish`` does, unless there is one already. Raises OSError."""
    directory, name = os.path.split(path)
    beside = os.path.join(directory, f".{name[:80]}.{secrets.token_hex(6)}{_SUFFIX}")
    try:
        create(beside, data, mode)
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)
    sync_directory(directory)


def publish_link(target: str, path: str) -> None:
    """Put a symbolic link at ``path`` in one durable step. Raises OSError."""
    directory, name = os.path.split(path)
    _remove_abandoned(directory, name)
    beside = os.path.join(directory, f".{name[:80]}.{secrets.token_hex(6)}{_SUFFIX}")
    os.symlink(target, beside)
    try:
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
    sync_directory(directory)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(top: str) -> None:
    """Make the names in a directory and in all directories below it durable."""
    for directory, _directories, _names in os.walk(top):
        sync_directory(directory)


def open_now(path: str, flags: int) -> int:
    """Open a file for ``open``, without waiting for a writer where it is a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def text_of(path: str) -> str:
    """Return the text of a file, empty where it cannot be read; of a larger one than MOST_TEXT its beginning."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_now) as file:
            return file.read(MOST_TEXT)
    except OSError:
        return ""


def bytes_of(path: str, limit: int = -1) -> bytes:
    """Return the bytes of a file, at most ``limit`` where that is given, empty where it cannot be read."""
    try:
        with open(path, "rb", opener=open_now) as file:
            return file.read(limit)
    except OSError:
        return b""


def listed(directory: str) -> list[str]:
    """Return the names in a directory, sorted; empty where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def existing_above(path: str) -> str:
    """Return a path as an absolute one if it exists, else the nearest directory above it."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def sha256_of(path: str) -> str:
    """Return the SHA-256 of a file in hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb", opener=open_now) as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


@contextlib.contextmanager
def locked(
    path: str,
    wait: float | None = None,
    waiting: Callable[[str], None] | None = None,
    pause: float = _PAUSE_SECONDS,
) -> Iterator[int]:
    """Hold the exclusive lock on a file, or on a directory that exists; the kernel drops it when the process ends.

    Only the owner can open the file, because a user who can read it can hold its lock; a link is not followed. ``wait``
    is in seconds, None for as long as it takes; ``waiting`` is called with the holder each time the lock was still
    taken, which is every ``pause`` seconds. Yields the descriptor. Raises LockedError when the time is over, and
    OSError where the file system has no locks.
    """
    is_directory = os.path.isdir(path)
    flags = os.O_RDONLY | os.O_DIRECTORY if is_directory else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if not is_directory:
            # Earlier releases let everybody read the lock of a model.
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, 0o600)
        deadline = None if wait is None else time.monotonic() + wait
        while not try_lock(descriptor):
            holder = "another process" if is_directory else _holder(descriptor)
            left = float("inf") if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise LockedError(path, holder)
            if waiting:
                waiting(holder)
            time.sleep(min(pause, left))
        if not is_directory:
            _sign(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock on an open file; return False where another process holds it. Raises OSError."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        # NFS answers with the second where another host holds it.
        if exc.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _sign(descriptor: int) -> None:
    """Note in a lock's file who holds it, for the message that another process prints."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"host": platform.node(), "pid": os.getpid()}).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(found['pid'])} of {found['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _remove_abandoned(directory: str, name: str) -> None:
    """Remove what killed processes left beside a file."""
    prefix, now = f".{name[:80]}.", time.time()
    with contextlib.suppress(OSError), os.scandir(directory or ".") as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    if now - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_SECONDS:
                        os.unlink(entry.path)


def _group_id(group: str) -> int:
    return grp.getgrnam(group).gr_gid
