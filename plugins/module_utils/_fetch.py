# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring one file from http(s)://, file:// or a path, verified while it is written and published by rename."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import http.client
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Iterator, NamedTuple

CHUNK = 1024 * 1024
# What a server says when it may do better in a moment.
RETRIED = (408, 425, 429, 500, 502, 503, 504)


class FetchError(Exception):
    """A file cannot be had; the message is the whole sentence for the user."""


class _TransferError(Exception):
    """The transfer broke off; another attempt may go further."""


@dataclass(frozen=True)
class Settings:
    """How to fetch: the site's own CA (beside the system's), seconds without a byte, attempts without progress."""

    ca_file: str | None = None
    stall_timeout: float = 30.0
    attempts: int = 4
    # Seconds before the second attempt; doubles with each one after it.
    backoff: float = 1.0


class Source(NamedTuple):
    """An opened file: its stream, its whole size in bytes where that is known, and the offset at which it starts."""

    stream: Any
    size: int | None
    offset: int


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
    try:
        source = _open(location, 0, settings, "HEAD")
    except _TransferError as exc:
        raise FetchError(f"{location}: {exc}") from exc
    source.stream.close()
    return source.size


def read(location: str, limit: int, settings: Settings) -> bytes:
    """Return a whole small file, at most ``limit`` bytes. Raises FetchError."""
    check_location(location)
    content = b""
    try:
        source = _open(location, 0, settings, "GET")
        with contextlib.closing(source.stream):
            for chunk in _chunks(source, settings):
                content += chunk
                if len(content) > limit:
                    raise FetchError(f"{location}: it is larger than {limit} bytes, so it is not what is expected here")
    except _TransferError as exc:
        raise FetchError(f"{location}: {exc}") from exc
    if source.size is not None and len(content) != source.size:
        raise FetchError(f"{location}: broke off after {len(content)} of {source.size} bytes")
    return content


def fetch(location: str, dest: str, size: int, sha256: str, settings: Settings) -> int:
    """Make ``dest`` the file at ``location``, of ``size`` bytes and this sha256 (hex); return the bytes transferred.

    The bytes go to ``<dest>.partial``, which is renamed once they are right; one that an earlier run left is continued.
    Raises FetchError, and leaves ``dest`` as it was.
    """
    check_location(location)
    with _Partial(dest + ".partial") as partial:
        if partial.length > size:
            partial.restart()
        continued = partial.length > 0
        transferred = _transfer(partial, location, size, settings)
        if continued and partial.sha256 != sha256:
            # What lay there may have been of another file; once more without it.
            partial.restart()
            transferred += _transfer(partial, location, size, settings)
        if partial.sha256 != sha256:
            found = partial.sha256
            partial.discard()
            raise FetchError(f"{location}: found sha256 {found}, expected {sha256}: it is not the file that is wanted")
        partial.publish(dest)
    return transferred


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

    def __enter__(self) -> _Partial:
        return self

    def __exit__(self, *_exc: object) -> None:
        try:
            self._file.close()
        except OSError as exc:
            raise self._error(exc) from exc

    @property
    def sha256(self) -> str:
        """Of the bytes written so far, in hex."""
        return self._hash.hexdigest()

    def append(self, chunk: bytes) -> None:
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

    def _count(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.length += len(chunk)

    def _error(self, exc: OSError) -> FetchError:
        if exc.errno == errno.EWOULDBLOCK:
            return FetchError(f"{self.path}: another process is writing it; wait for that one, then run again")
        return FetchError(f"{self.path}: cannot be written: {exc.strerror or exc}")


def _transfer(partial: _Partial, location: str, size: int, settings: Settings) -> int:
    """Bring ``partial`` to ``size`` bytes; return the bytes transferred. Raises FetchError."""
    transferred, furthest, failures = 0, partial.length, 0
    while partial.length < size:
        try:
            for chunk in _missing(partial, location, size, settings):
                partial.append(chunk)
                transferred += len(chunk)
        except _TransferError as exc:
            failures = 1 if partial.length > furthest else failures + 1
            furthest = max(furthest, partial.length)
            if failures >= settings.attempts:
                raise FetchError(
                    f"{location}: {exc} (attempt {failures} without progress; {partial.length} of {size} bytes came)"
                ) from exc
            time.sleep(settings.backoff * 2 ** (failures - 1))
    return transferred


def _missing(partial: _Partial, location: str, size: int, settings: Settings) -> Iterator[bytes]:
    """Yield what ``partial`` lacks, up to ``size`` bytes in all; restart it where the source cannot continue."""
    source = _open(location, partial.length, settings, "GET")
    with contextlib.closing(source.stream):
        check_size(location, source.size, size)
        if source.offset not in (0, partial.length):
            raise FetchError(f"{location}: asked for its bytes from {partial.length}, got those from {source.offset}")
        if source.offset != partial.length:
            partial.restart()
        for chunk in _chunks(source, settings):
            if partial.length + len(chunk) > size:
                raise FetchError(f"{location}: it goes on after {size} bytes, the expected size")
            yield chunk
    if partial.length < size:
        raise _TransferError(f"broke off after {partial.length} of {size} bytes")


def _chunks(source: Source, settings: Settings) -> Iterator[bytes]:
    while True:
        try:
            chunk = source.stream.read1(CHUNK)
        except socket.timeout as exc:
            raise _TransferError(f"no byte came for {settings.stall_timeout:g} s") from exc
        except (OSError, http.client.HTTPException) as exc:
            raise _TransferError(f"broke off: {exc}") from exc
        if not chunk:
            return
        yield chunk


def _open(location: str, offset: int, settings: Settings, method: str) -> Source:
    """Open ``location`` at ``offset``, or at 0 where it cannot. Raises FetchError or _TransferError."""
    url = urllib.parse.urlsplit(location)
    if url.scheme in ("http", "https"):
        return _open_url(location, offset, settings, method)
    path = urllib.request.url2pathname(url.path) if is_url(location) else location
    try:
        file = open(path, "rb")  # noqa: SIM115
        file.seek(offset)
    except OSError as exc:
        raise FetchError(f"{location}: {exc.strerror}") from exc
    return Source(file, os.fstat(file.fileno()).st_size, offset)


def _open_url(location: str, offset: int, settings: Settings, method: str) -> Source:
    headers = {"Accept-Encoding": "identity", "User-Agent": "baremetal.inference"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    # check_location has looked at the scheme.
    request = urllib.request.Request(location, headers=headers, method=method)  # noqa: S310
    try:
        response = _opener(settings).open(request, timeout=settings.stall_timeout)
    except urllib.error.HTTPError as exc:
        return _after_status(exc, location, offset, settings, method)
    except urllib.error.URLError as exc:
        raise _after_failure(exc.reason, location, settings) from exc
    except (OSError, http.client.HTTPException) as exc:
        raise _after_failure(exc, location, settings) from exc
    part = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if response.status == 206 and part:
        return Source(response, int(part.group(2)) if part.group(2) != "*" else None, int(part.group(1)))
    length = response.headers.get("Content-Length")
    return Source(response, int(length) if length else None, 0)


def _after_status(error: urllib.error.HTTPError, location: str, offset: int, settings: Settings, method: str) -> Source:
    """Ask once more where another request may do, or raise."""
    error.close()
    if error.code == 416 and offset:
        return _open_url(location, 0, settings, method)
    if error.code in (405, 501) and method == "HEAD":
        return _open_url(location, offset, settings, "GET")
    answer = f"HTTP {error.code} {error.reason}"
    if error.code in RETRIED:
        raise _TransferError(answer)
    raise FetchError(f"{location}: {answer}")


def _after_failure(reason: Any, location: str, settings: Settings) -> Exception:
    """Return what to raise when no answer came."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return FetchError(
            f"{location}: the certificate is not trusted ({reason.verify_message}); name the CA in ca_file"
        )
    if isinstance(reason, socket.timeout):
        return _TransferError(f"no answer within {settings.stall_timeout:g} s")
    if isinstance(reason, OSError) and reason.strerror:
        return _TransferError(reason.strerror)
    return _TransferError(str(reason))


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    """Return an opener of http and https alone, so that no redirect leads elsewhere; proxies are the environment's."""
    context = ssl.create_default_context()
    if settings.ca_file:
        try:
            context.load_verify_locations(settings.ca_file)
        except OSError as exc:
            raise FetchError(f"ca_file {settings.ca_file}: cannot be read as PEM certificates: {exc}") from exc
    director = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        director.add_handler(handler)
    return director
