# SPDX-License-Identifier: GPL-3.0-or-later
"""A download: the partial file is hashed while it is written, and published by rename once its hash is right.

It is read again only where another process may have written into it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import io
import os
import stat
from typing import Callable, NamedTuple

from ..common import files_host
from ..common.files_host import try_lock
from .connections import FetchError, redact_url
from .openings import OpeningsWatch
from .scheduler import Job

CHUNK = 1024 * 1024
# After this many bytes the kernel is asked to write them to the disk.
WRITE_OUT = 32 * CHUNK
# linux/fs.h
SYNC_FILE_RANGE_WRITE = 2
_LIBC = ctypes.CDLL(None)


class TargetError(FetchError):
    """A file cannot be written on this host, whatever its source: another source would not help."""


class DownloadRequest(NamedTuple):
    """A file to fetch: its source, its destination, its size in bytes and its sha256 in hex."""

    location: str
    dest: str
    size: int
    sha256: str


# Receives a file that was published, and the stat of its descriptor.
OnPublished = Callable[[DownloadRequest, os.stat_result], None]


class Download:
    """The download of one file: its partial file opens with the first bytes and is published when its hash is right."""

    def __init__(self, file: DownloadRequest, published: OnPublished | None = None) -> None:
        self.file = file
        self._published = published
        self._path = file.dest + ".partial"
        found = _partial_length(self._path)
        # A partial file that is too long belongs to another file.
        self._found = found if found <= file.size else 0
        self._partial: PartialFile | None = None
        self._ended = False
        self.job = Job(file.location, file.size, self, done=self.end)

    def __enter__(self) -> Download:
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._partial:
            self._partial.close()

    @property
    def length(self) -> int:
        """The bytes in the partial file."""
        return self._partial.length if self._partial else self._found

    def append(self, chunk: memoryview) -> None:
        """Write and hash a chunk. Raises TargetError."""
        self._open_partial().append(chunk)

    def restart(self) -> None:
        """Discard the bytes in the partial file."""
        self._open_partial().restart()

    def end(self) -> None:
        """Publish a correct file. Raises FetchError for a wrong one, unless an earlier run began it."""
        if self._ended or self.length < self.file.size:
            return
        partial = self._open_partial()
        found, expected = partial.sha256, self.file.sha256
        if found == expected:
            self._ended = True
            stat_result = partial.publish(self.file.dest)
            if self._published:
                self._published(self.file, stat_result)
        elif not self._found:
            partial.discard()
            raise FetchError(
                f"{redact_url(self.file.location)}: found sha256 {found}, expected {expected}: "
                "the source has another file under this name"
            )

    def discard_stale(self) -> bool:
        """Discard a wrong file that an earlier run began; return whether there was one."""
        if self._ended:
            return False
        self.restart()
        self._found = 0
        self.job = Job(self.file.location, self.file.size, self, done=self.end)
        return True

    def _open_partial(self) -> PartialFile:
        if self._partial is None:
            self._partial = PartialFile(self._path)
            if not self._found:
                self._partial.restart()
            if self._partial.length != self._found:
                if not self._partial.length:
                    # The other process has published its file; this is a new one.
                    self._partial.discard()
                raise TargetError(f"{self._path}: another process has written it; run again")
        return self._partial


def _partial_length(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0
    except OSError as exc:
        raise TargetError(f"{path}: cannot be written: {exc.strerror}") from exc


class PartialFile:
    """The partial file beside a destination, locked by this process, with the hash of its content."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.length = 0
        self._hash = hashlib.sha256()
        try:
            self._file = self._open_locked()
            self._openings = OpeningsWatch(path)
            # Who had it open before could still write into the part that an earlier run has left.
            self._trusted = not os.fstat(self._file.fileno()).st_size
            for chunk in iter(lambda: self._file.read(CHUNK), b""):
                self._count(chunk)
            # The kernel was asked to write the bytes up to here to the disk.
            self._begun = self.length
        except OSError as exc:
            raise self._error(exc) from exc

    def close(self) -> None:
        """Close the file and release its lock. Raises FetchError."""
        self._openings.close()
        try:
            self._file.close()
        except OSError as exc:
            raise self._error(exc) from exc

    @property
    def sha256(self) -> str:
        """The sha256 of the bytes written so far, in hex."""
        return self._hash.hexdigest()

    def append(self, chunk: memoryview) -> None:
        """Write and hash a chunk. Raises TargetError when the file system refuses."""
        while chunk:
            try:
                # A disk that fills up accepts a part of the data before it refuses.
                written = self._file.write(chunk)
            except OSError as exc:
                raise self._error(exc) from exc
            self._count(chunk[:written])
            chunk = chunk[written:]
        if self.length - self._begun >= WRITE_OUT:
            _start_writeback(self._file.fileno(), self._begun, self.length - self._begun)
            self._begun = self.length

    def restart(self) -> None:
        """Empty the file."""
        if not self.length:
            return
        self._file.seek(0)
        self._file.truncate()
        self.length = self._begun = 0
        self._hash = hashlib.sha256()

    def discard(self) -> None:
        """Remove the file."""
        os.unlink(self.path)

    def publish(self, dest: str) -> os.stat_result:
        """Rename the file to ``dest``, complete and readable for all, close it, and return its stat.

        Raises TargetError, also where another process has changed the file or put another one into its place.
        """
        try:
            os.fchmod(self._file.fileno(), 0o644)
            os.fsync(self._file.fileno())
            found = os.fstat(self._file.fileno())
            is_ours = found.st_size == self.length and os.path.samestat(found, os.lstat(self.path))
            if not is_ours or (self._may_differ(found) and self._hash_again() != self.sha256):
                raise TargetError(
                    f"{self.path}: another process has changed it while it was downloaded (found {found.st_size} "
                    f"bytes, wrote {self.length}); find out which, remove the file, then run again"
                )
            os.replace(self.path, dest)
            self.close()
        except OSError as exc:
            raise self._error(exc) from exc
        return found

    def _may_differ(self, found: os.stat_result) -> bool:
        """Whether the content may differ from what was hashed: others had it open, or emptied it by its name."""
        has_hole = found.st_blocks * 512 < found.st_size
        return has_hole or not self._trusted or self._openings.was_opened()

    def _hash_again(self) -> str:
        """Return the sha256 of what is in the file."""
        digest = hashlib.sha256()
        self._file.seek(0)
        for chunk in iter(lambda: self._file.read(CHUNK), b""):
            digest.update(chunk)
        return digest.hexdigest()

    def _open_locked(self) -> io.FileIO:
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self.path, flags, 0o600)
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                os.close(descriptor)
                raise OSError(errno.ELOOP, "")
            # Without a buffer, because the writes are large or the whole file.
            file = io.FileIO(descriptor, "r+")
            try:
                if not try_lock(descriptor):
                    raise BlockingIOError(errno.EWOULDBLOCK, "")
                # Another process may have published or removed it between the two calls.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(found, os.stat(self.path)):
                        return file
            except OSError:
                file.close()
                raise
            file.close()

    def _count(self, chunk: bytes | memoryview) -> None:
        self._hash.update(chunk)
        self.length += len(chunk)

    def _error(self, exc: OSError) -> TargetError:
        if exc.errno == errno.EWOULDBLOCK:
            return TargetError(f"{self.path}: another process is writing it; wait until it ends, then run again")
        if exc.errno in (errno.ELOOP, errno.EISDIR):
            return TargetError(
                f"{self.path}: it is not a regular file with one name; find out who created it and remove it"
            )
        return TargetError(f"{self.path}: cannot be written: {exc.strerror or exc}")


def _start_writeback(descriptor: int, first: int, length: int) -> None:
    """Make the kernel write the appended bytes while more arrive, so that fsync has little left to wait for."""
    with contextlib.suppress(AttributeError):
        # Best effort, its result is ignored: fsync reports whether the bytes are on the disk.
        _LIBC.sync_file_range(descriptor, ctypes.c_int64(first), ctypes.c_int64(length), SYNC_FILE_RANGE_WRITE)


def make_directory(path: str, top: str) -> None:
    """Make a directory and its parents up to ``top``, which exists. Raises TargetError, also for links."""
    place = top
    for name in os.path.relpath(path, top).split(os.sep):
        place = os.path.join(place, name)
        try:
            files_host.make_directory(place)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                raise TargetError(f"{place}: it is not a directory; find out who created it and remove it") from None
        except OSError as exc:
            raise TargetError(f"{place}: cannot be created: {exc.strerror}") from exc
