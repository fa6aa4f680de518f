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
import stat
import time
from typing import Callable, Iterator

# A publication takes less time, because the content is in memory: an older file beside it is from a killed process.
_ABANDONED_SECONDS = 3600.0
_SUFFIX = ".partial"
# The kernel's list of 100,000 connections has 15 MiB.
MOST_TEXT = 64 << 20
_PAUSE_SECONDS = 0.05
# What holds a lock does something short, or says how long it may take.
LOCK_SECONDS = 300.0
LOCKS = "/proc/locks"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class LockedError(OSError):
    """Another process holds the lock; ``holder`` describes it ("process 71 of gpu-01 (uid 0)")."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(errno.EAGAIN, f"is locked by {holder}; wait until that ends, or end it if it hangs", path)
        self.path, self.holder = path, holder

    def __str__(self) -> str:
        return f"{self.path} {self.strerror}"


def publish(path: str, data: bytes | str, mode: int = 0o644, group: str | None = None, durable: bool = True) -> None:
    """Write a complete file durably under its final name in one step; text is encoded as UTF-8.

    The file has exactly ``mode``, whatever the umask, and the group where one is given. A link at ``path`` is replaced,
    not followed. The directory must exist. ``durable`` is false for a file that is not needed after a crash: nothing
    waits for the disk then. Raises OSError, and LookupError for an unknown group; then the file at ``path`` is
    unchanged, and nothing is left beside it.
    """
    directory, beside = _beside(path)
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
    directory, beside = _beside(path)
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
    directory, beside = _beside(path)
    os.symlink(target, beside)
    try:
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
    sync_directory(directory)


def make_directories(path: str, mode: int = 0o755) -> None:
    """Make a directory and those above it that are missing, as ``make_directory`` does. Raises OSError."""
    if os.path.isdir(path):
        return
    above = os.path.dirname(path.rstrip("/"))
    if above:
        make_directories(above)
    try:
        make_directory(path, mode)
    except FileExistsError:
        # Another process was faster.
        if not os.path.isdir(path):
            raise


def make_directory(path: str, mode: int = 0o755) -> None:
    """Make a directory with at most ``mode``, and without a default ACL. Raises OSError.

    The default ACL of the directory above counts instead of the umask: with os.makedirs, and in all that root makes in
    the new directory later, its users could exchange what root reads, runs and removes.
    """
    os.mkdir(path, mode)
    # Most directories have none, some file systems know none, and Python on macOS has no such function.
    with contextlib.suppress(OSError, AttributeError):
        os.removexattr(path, "system.posix_acl_default", follow_symlinks=False)


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
    """Open a file for ``open``, without waiting for a writer where it is a FIFO; a new one is its user's alone."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def open_regular(path: str, flags: int) -> int:
    """Open a file for ``open`` as open_now does; a FIFO or a device, which may have no end, raises OSError."""
    descriptor = open_now(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def text_of(path: str) -> str:
    """Return the text of a file, empty where it cannot be read; of a larger one than MOST_TEXT its beginning."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_regular) as file:
            return file.read(MOST_TEXT)
    except OSError:
        return ""


def bytes_of(path: str, limit: int = -1) -> bytes:
    """Return the bytes of a file, at most ``limit`` where that is given, empty where it cannot be read."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read(limit)
    except OSError:
        return b""


def listed(directory: str) -> list[str]:
    """Return the names in a directory, sorted; empty where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def target_of(link: str) -> str:
    """Return the target of a symlink, empty where there is none."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def existing_above(path: str) -> str:
    """Return a path as an absolute one if it exists, else the nearest directory above it."""
    path = os.path.abspath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def sha256_of(path: str, size: int | None = None) -> str:
    """Return the SHA-256 of a file in hexadecimal digits; of one that grows beyond ``size`` that of its beginning.

    Raises OSError.
    """
    digest = hashlib.sha256()
    with open(path, "rb", opener=open_regular) as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
            if size is not None and file.tell() > size:
                break
    return digest.hexdigest()


@contextlib.contextmanager
def locked(
    path: str,
    wait: float = LOCK_SECONDS,
    waiting: Callable[[str], None] | None = None,
    pause: float = _PAUSE_SECONDS,
) -> Iterator[int]:
    """Hold the exclusive lock on a file that is nothing else; the kernel drops it when the process ends in any way.

    A user who can open a file can hold its lock, so only its owner can open this one, and the caller keeps it in a
    directory that only its owner can write: never a directory itself, never a file that others read. ``wait`` is in
    seconds; ``waiting`` is called with the holder each time the lock was still taken, which is every ``pause`` seconds.
    Yields the descriptor. Raises LockedError when the time is over, and OSError for a file that another user could hold
    and where the file system has no locks.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        _check_owner(descriptor, path)
        deadline = time.monotonic() + wait
        while not try_lock(descriptor):
            left = deadline - time.monotonic()
            if left <= 0:
                raise LockedError(path, describe_holder(descriptor))
            if waiting:
                waiting(describe_holder(descriptor))
            time.sleep(min(pause, left))
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


def _check_owner(descriptor: int, path: str) -> None:
    """Close a lock's file to others. Raises OSError for one that another user made, or no plain file."""
    found = os.fstat(descriptor)
    # A share that maps root to another user gives that one the directory too. Who owns the directory can put any file
    # in the place of a lock, or take it away, so a file of that user is no weaker than the directory; it is never
    # followed, has one name only, and nothing in it is believed but a number of a process for a message.
    owners = (0, os.geteuid(), os.stat(os.path.dirname(path) or ".").st_uid)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or found.st_uid not in owners:
        problem = f"not a lock of this user (owner uid {found.st_uid}); find out who made it and remove it"
        raise OSError(errno.EPERM, problem, path)
    if found.st_mode & 0o077:
        # Earlier releases let everybody read the lock of a model.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o600)


def describe_holder(descriptor: int) -> str:
    """Return who holds the lock on an open file, by the kernel's list of locks.

    A process on another host, or of another namespace, is known by what it has noted in the file.
    """
    found = os.fstat(descriptor)
    for pid in _lock_pids(f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"):
        with contextlib.suppress(OSError):
            uid = os.stat(f"/proc/{pid}").st_uid
            return f"process {pid} of {os.uname().nodename} (uid {uid})"
    try:
        noted = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(noted['pid'])} of {str(noted['host'])[:64]!a}".replace("'", "")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"


def _lock_pids(place: str) -> Iterator[int]:
    """Yield the processes that hold a flock on a file, which the kernel names DEVICE:INODE."""
    for line in text_of(LOCKS).splitlines():
        # A process that waits has "->" in its second field.
        fields = line.split()
        if fields[1:2] == ["FLOCK"] and place in fields[5:6] and fields[4].isdecimal():
            yield int(fields[4])


def _sign(descriptor: int) -> None:
    """Note in a lock's file who holds it, for the message that another process prints; a full disk has no room."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"host": os.uname().nodename, "pid": os.getpid()}).encode(), 0)


def _beside(path: str) -> tuple[str, str]:
    """Return the directory of a file and a new name beside it; remove what killed processes left there."""
    directory, name = os.path.split(path)
    prefix, now = f".{name[:80]}.", time.time()
    with contextlib.suppress(OSError), os.scandir(directory or ".") as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError):
                    if now - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_SECONDS:
                        os.unlink(entry.path)
    return directory, os.path.join(directory, f"{prefix}{os.urandom(6).hex()}{_SUFFIX}")


def _group_id(group: str) -> int:
    return grp.getgrnam(group).gr_gid
