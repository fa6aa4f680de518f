# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one file from http(s)://, file:// or a path, verified while it is written and published by rename."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import ssl
import urllib.parse
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils._connections import (
    Connections,
    FetchError,
    Site,
    TransferError,
)
from ansible_collections.baremetal.inference.plugins.module_utils._parallel import Fetch, Job, Pace, Stream
from ansible_collections.baremetal.inference.plugins.module_utils._streams import DiskStream, HttpStream, path_of

CHUNK = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """How to fetch: the site's own CA (beside the system's), seconds without a byte, attempts without progress."""

    ca_file: str | None = None
    stall_timeout: float = 30.0
    attempts: int = 4
    # Seconds before the second attempt; doubles with each one after it.
    backoff: float = 1.0
    # How many at once; a part's bytes; bytes per second for all together, 0 for no limit.
    connections: int = 8
    part: int = 8 * CHUNK
    limit: int = 0
    # Sent to the host of each address, and to none that it redirects to: a token.
    headers: Mapping[str, str] = field(default_factory=dict)


class Wanted(NamedTuple):
    """A file to fetch: from where, to where, its bytes and its sha256 in hex."""

    location: str
    dest: str
    size: int
    sha256: str


def join(base: str, *parts: str) -> str:
    """Return the address of a file below ``base``, which is a URL or a path."""
    if is_url(base):
        return "/".join((base.rstrip("/"), *(urllib.parse.quote(part) for part in parts)))
    return os.path.join(base, *parts)


def is_url(location: str) -> bool:
    """Whether ``location`` is a URL; everything else is a path on the host."""
    return "://" in location


def check_location(location: str) -> None:
    """Raise FetchError unless ``location`` is an absolute path or a URL that can be fetched from."""
    if not is_url(location):
        if not os.path.isabs(location):
            raise FetchError(f"{location}: found a relative path, expected a URL or an absolute path on the host")
        return
    url = urllib.parse.urlsplit(location)
    if url.username or url.password:
        # Not repeated whole: the message stands in logs.
        raise FetchError(f"{url.scheme}://...@{url.hostname}: a source with a user or password would show them in logs")
    if url.scheme not in ("http", "https", "file"):
        raise FetchError(f"{location}: scheme {url.scheme!r} is not known; expected http, https, file, or a path")


def probe(location: str, settings: Settings) -> int | None:
    """Return the size in bytes that ``location`` says it has, None where it does not say. Raises FetchError."""
    check_location(location)
    if not _is_http(location):
        try:
            return os.stat(path_of(location)).st_size
        except OSError as exc:
            raise FetchError(f"{location}: {exc.strerror}") from exc
    connections = Connections(_site(settings))
    try:
        return connections.ask(location, 0, None, location, "HEAD").size
    except FetchError as exc:
        if exc.status not in (405, 501):
            raise
        return connections.ask(location, 0, None, location).size
    except TransferError as exc:
        raise FetchError(f"{location}: {exc}") from exc
    finally:
        connections.close()


def read(location: str, limit: int, settings: Settings) -> bytes:
    """Return a whole small file, at most ``limit`` bytes. Raises FetchError."""
    check_location(location)
    if not _is_http(location):
        try:
            with open(path_of(location), "rb") as file:
                return _limited(location, file.read(limit + 1), limit)
        except OSError as exc:
            raise FetchError(f"{location}: {exc.strerror}") from exc
    connections, buffer, got = Connections(_site(settings)), bytearray(limit + 1), 0
    try:
        answer = connections.ask(location, 0, None, location)
        while got <= limit:
            length = answer.read_into(memoryview(buffer)[got : got + CHUNK])
            if not length:
                break
            got += length
    except TransferError as exc:
        raise FetchError(f"{location}: {exc}") from exc
    finally:
        connections.close()
    content = _limited(location, bytes(buffer[:got]), limit)
    if answer.size is not None and got != answer.size:
        raise FetchError(f"{location}: broke off after {got} of {answer.size} bytes")
    return content


def _limited(location: str, content: bytes, limit: int) -> bytes:
    if len(content) > limit:
        raise FetchError(f"{location}: it is larger than {limit} bytes, so it is not what is expected here")
    return content


def fetch(location: str, dest: str, size: int, sha256: str, settings: Settings) -> int:
    """Fetch one file as fetch_all does; return the bytes transferred."""
    return fetch_all([Wanted(location, dest, size, sha256)], settings)


def fetch_all(files: Sequence[Wanted], settings: Settings, progress: Callable[[Fetch], None] | None = None) -> int:
    """Make each ``dest`` the file at its ``location``; return the bytes transferred.

    The bytes go to ``<dest>.partial``, which is renamed once they are right; one that an earlier run left is continued.
    Each is published as soon as it is whole. ``progress`` gets what knows how far it is, before it starts.
    Raises FetchError, and leaves each ``dest`` that is not whole as it was.
    """
    for file in files:
        check_location(file.location)
    with ExitStack() as stack:
        growing = [stack.enter_context(_Growing(file)) for file in files]
        transferred = _run(growing, settings, progress)
        # What lay there may have been of another file; once more without it.
        again = [one for one in growing if one.begin_again()]
        return transferred + (_run(again, settings, progress) if again else 0)


def _run(growing: Sequence[_Growing], settings: Settings, progress: Callable[[Fetch], None] | None) -> int:
    pace = Pace(settings.connections, settings.part, settings.attempts, settings.backoff, settings.limit)
    http = _site(settings) if any(_is_http(one.file.location) for one in growing) else None

    def open_stream() -> Stream:
        return _Either(http)

    work = Fetch([one.job for one in growing if one.job.target.length < one.file.size], open_stream, pace)
    if progress:
        progress(work)
    transferred = work.run()
    for one in growing:
        one.end()
    return transferred


class _Either:
    """What one thread reads from, be it a server or a disk."""

    def __init__(self, site: Site | None) -> None:
        self._disk = DiskStream()
        self._http = HttpStream(site) if site else None

    def fill(self, part: Any, view: memoryview, count: Callable[[int], None]) -> None:
        """Fill the buffer of a part."""
        self._of(part.job).fill(part, view, count)

    def pour(self, job: Job, buffer: bytearray, count: Callable[[int], None]) -> None:
        """Append a whole file."""
        self._of(job).pour(job, buffer, count)

    def close(self) -> None:
        """Close both."""
        self._disk.close()
        if self._http:
            self._http.close()

    def _of(self, job: Job) -> Stream:
        return self._http if self._http and _is_http(job.location) else self._disk


class _Growing:
    """A file on its way: its partial file, which is published as soon as it is right."""

    def __init__(self, file: Wanted) -> None:
        self.file = file
        self._partial = _Partial(file.dest + ".partial")
        if self._partial.length > file.size:
            self._partial.restart()
        self._continued = self._partial.length > 0
        self._ended = False
        self.job = Job(file.location, file.size, self._partial, done=self.end)

    def __enter__(self) -> _Growing:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._partial.close()

    def end(self) -> None:
        """Publish a file that is right. Raises FetchError for a wrong one, unless an earlier run had begun it."""
        if self._ended or self._partial.length < self.file.size:
            return
        found, expected = self._partial.sha256, self.file.sha256
        if found == expected:
            self._ended = True
            self._partial.publish(self.file.dest)
        elif not self._continued:
            self._partial.discard()
            raise FetchError(
                f"{self.file.location}: found sha256 {found}, expected {expected}: it is not the file that is wanted"
            )

    def begin_again(self) -> bool:
        """Return whether the file is wrong because of what lay there before; then that is forgotten."""
        if self._ended:
            return False
        self._partial.restart()
        self._continued = False
        self.job = Job(self.file.location, self.file.size, self._partial, done=self.end)
        return True


def _is_http(location: str) -> bool:
    return urllib.parse.urlsplit(location).scheme in ("http", "https")


def _site(settings: Settings) -> Site:
    """Return how servers are spoken to. Raises FetchError for a CA that cannot be read."""
    context = ssl.create_default_context()
    if settings.ca_file:
        try:
            context.load_verify_locations(settings.ca_file)
        except OSError as exc:
            raise FetchError(f"ca_file {settings.ca_file}: cannot be read as PEM certificates: {exc}") from exc
    return Site(context, settings.stall_timeout, settings.headers)


def check_size(location: str, found: int | None, expected: int) -> None:
    """Raise FetchError when a source says that its file has another size than the expected one (bytes)."""
    if found is not None and found != expected:
        raise FetchError(f"{location}: found {found} bytes, expected {expected}")


def sync_directory(path: str) -> None:
    """Make the renames within a directory last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Partial:
    """The partial file beside a destination, locked for this process, with the hash of what it holds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.length = 0
        self._hash = hashlib.sha256()
        try:
            self._file = self._open_locked()
            for chunk in iter(lambda: self._file.read(CHUNK), b""):
                self._count(chunk)
        except OSError as exc:
            raise self._error(exc) from exc

    def close(self) -> None:
        """Close the file and let go of its lock. Raises FetchError."""
        try:
            self._file.close()
        except OSError as exc:
            raise self._error(exc) from exc

    @property
    def sha256(self) -> str:
        """Of the bytes written so far, in hex."""
        return self._hash.hexdigest()

    def append(self, chunk: bytes | memoryview) -> None:
        """Write and hash. Raises FetchError when the file system refuses."""
        try:
            self._file.write(chunk)
        except OSError as exc:
            raise self._error(exc) from exc
        self._count(chunk)

    def restart(self) -> None:
        """Forget what is there."""
        self._file.seek(0)
        self._file.truncate()
        self.length = 0
        self._hash = hashlib.sha256()

    def discard(self) -> None:
        """Remove the file."""
        os.unlink(self.path)

    def publish(self, dest: str) -> None:
        """Rename the file to ``dest``, complete and readable for all. Raises FetchError."""
        try:
            self._file.flush()
            os.fchmod(self._file.fileno(), 0o644)
            os.fsync(self._file.fileno())
            os.replace(self.path, dest)
            sync_directory(os.path.dirname(dest))
        except OSError as exc:
            raise self._error(exc) from exc

    def _open_locked(self) -> Any:
        while True:
            file = open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")  # noqa: SIM115
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have published or removed it between the two calls.
                if os.path.exists(self.path) and os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    return file
            except OSError:
                file.close()
                raise
            file.close()

    def _count(self, chunk: bytes | memoryview) -> None:
        self._hash.update(chunk)
        self.length += len(chunk)

    def _error(self, exc: OSError) -> FetchError:
        if exc.errno == errno.EWOULDBLOCK:
            return FetchError(f"{self.path}: another process is writing it; wait for that one, then run again")
        return FetchError(f"{self.path}: cannot be written: {exc.strerror or exc}")
