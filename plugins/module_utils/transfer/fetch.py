# SPDX-License-Identifier: GPL-3.0-or-later
"""Download files from http(s)://, file:// or a path, verify them while writing, and publish them by rename."""

from __future__ import annotations

import functools
import os
import re
import ssl
import time
import urllib.parse
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Callable, Mapping, Sequence

from ..common.files_host import open_regular, sync_directory
from .connections import FetchError, HttpSettings, RangeConnections, RangeResponse, TransferError, redact_url
from .partial_file import Download, DownloadRequest, OnPublished, TargetError
from .scheduler import Job, Part, Scheduler, Stream, TransferLimits
from .streams import DiskStream, HttpStream, disk_path
from .watch import RateFloor

__all__ = [
    "DownloadRequest",
    "Settings",
    "TargetError",
    "check_base",
    "check_location",
    "check_size",
    "fetch_file",
    "fetch_files",
    "is_url",
    "join_location",
    "probe_size",
    "probe_sizes",
    "read_small_file",
]

CHUNK = 1024 * 1024
# Bytes of memory for all parts in flight together.
MEMORY = 128 * CHUNK
# Bytes per second: at less, a model of 60 GB takes ten weeks.
LOWEST_RATE = 10_000
# Statuses of servers that do not know HEAD, or refuse it, and may give the file itself.
NO_HEAD_STATUSES = (400, 403, 404, 405, 501)


@dataclass(frozen=True)
class Settings:
    """How to fetch: the site's own CA (besides the system's), seconds without a byte, attempts without progress.

    ``stall_timeout`` is the time for the head of an answer too, from its first byte to its last. ``lowest_rate`` is in
    bytes per second of all connections together, over a minute; 0 for none.
    """

    ca_file: str | None = None
    stall_timeout: float = 30.0
    attempts: int = 4
    # Seconds before the second attempt; they double with each further attempt.
    backoff: float = 1.0
    # Connections at once; bytes of a part; bytes per second for all together, 0 for no limit.
    connections: int = 8
    part: int = 8 * CHUNK
    limit: int = 0
    lowest_rate: int = LOWEST_RATE
    # Whether there is another source: then a stalled source is abandoned at once instead of after all attempts.
    has_fallback: bool = False
    # Sent to the host of each address, never to a host that it redirects to: a token.
    headers: Mapping[str, str] = field(default_factory=dict)
    # For addresses that are signed for GET alone: the size is requested with the first byte instead of HEAD.
    probe_with_get: bool = False


def join_location(base: str, *parts: str) -> str:
    """Return the address of a file below ``base``, which is a URL or a path."""
    if is_url(base):
        return "/".join((base.rstrip("/"), *(urllib.parse.quote(part) for part in parts)))
    return os.path.join(base, *parts)


def is_url(location: str) -> bool:
    """Return whether ``location`` is a URL; everything else is a path on the host."""
    return "://" in location or location.startswith("file:/")


def check_location(location: str) -> None:
    """Raise FetchError unless ``location`` is an absolute path or a URL of a supported scheme."""
    if not is_url(location):
        if not os.path.isabs(location):
            raise FetchError(
                f"{redact_url(location)}: found a relative path, expected a URL or an absolute path on the host"
            )
        return
    try:
        url = urllib.parse.urlsplit(location)
        _port = url.port
    except ValueError:
        raise FetchError(f"{redact_url(location)}: invalid host or port") from None
    if url.username or url.password:
        # The message omits the address, because logs keep it.
        raise FetchError(f"{url.scheme}://...@{url.hostname}: a source with a user or password would show them in logs")
    if url.scheme not in ("http", "https", "file"):
        raise FetchError(
            f"{redact_url(location)}: scheme {url.scheme!r} is not known; expected http, https, file, or a path"
        )


def check_base(location: str) -> None:
    """Raise FetchError unless ``location`` is a place below which files can lie: a query would swallow their names."""
    check_location(location)
    if is_url(location) and re.search(r"[?#]", location):
        raise FetchError(
            f"{redact_url(location)}: found a query or a fragment ('?' or '#'), expected the address of a directory; a "
            "token is named by token_file or token_env"
        )


def probe_size(location: str, settings: Settings) -> int | None:
    """Return the size in bytes that ``location`` states, None where it states none. Raises FetchError."""
    return probe_sizes([location], settings)[0]


def probe_sizes(locations: Sequence[str], settings: Settings) -> list[int | None]:
    """Return the size of each location as probe_size does, over one connection per server. Raises FetchError."""
    for location in locations:
        check_location(location)
    # The heads of thousands of answers are few bytes, and each has its deadline.
    site = replace(settings, lowest_rate=0)
    connections = RangeConnections(http_settings(site)) if any(_is_http(location) for location in locations) else None
    try:
        return [
            _request_size_with_retries(connections, location, settings)
            if connections and _is_http(location)
            else _size_on_disk(location)
            for location in locations
        ]
    finally:
        if connections:
            connections.close()


def _size_on_disk(location: str) -> int:
    try:
        return os.stat(disk_path(location)).st_size
    except OSError as exc:
        raise FetchError(f"{redact_url(location)}: {exc.strerror}") from exc


def _request_size_with_retries(connections: RangeConnections, location: str, settings: Settings) -> int | None:
    """Request a size again from a server that is too busy, but not from one without any answer."""
    for attempt in range(settings.attempts):
        try:
            return _request_size(connections, location, settings.probe_with_get)
        except TransferError as exc:
            if not exc.is_answer or attempt + 1 == settings.attempts:
                raise FetchError(f"{redact_url(location)}: {exc}") from exc
            time.sleep(max(exc.wait, settings.backoff * 2**attempt))
    raise AssertionError("unreachable")


def _request_size(connections: RangeConnections, location: str, with_get: bool) -> int | None:
    if not with_get:
        try:
            return _size_in(connections, connections.request_range(location, 0, None, location, "HEAD"))
        except FetchError as exc:
            if exc.status not in NO_HEAD_STATUSES:
                raise
    try:
        return _size_in(connections, connections.request_range(location, 0, 0, location))
    except FetchError as exc:
        if exc.status == 416:
            # Only an empty file has no first byte.
            return 0
        raise


def _size_in(connections: RangeConnections, answer: RangeResponse) -> int | None:
    connections.skip_body(answer.url, answer.response)
    return answer.size


def read_small_file(location: str, limit: int, settings: Settings) -> bytes:
    """Return the content of a small file, at most ``limit`` bytes. Raises FetchError."""
    check_location(location)
    if not _is_http(location):
        try:
            with open(disk_path(location), "rb", opener=open_regular) as file:
                return _check_length(location, file.read(limit + 1), limit)
        except OSError as exc:
            raise FetchError(f"{redact_url(location)}: {exc.strerror}") from exc
    connections = RangeConnections(http_settings(settings))
    try:
        answer = connections.request_range(location, 0, None, location)
        content = _check_length(location, answer.read_all(limit), limit)
    except TransferError as exc:
        raise FetchError(f"{redact_url(location)}: {exc}") from exc
    finally:
        connections.close()
    if answer.size is not None and len(content) != answer.size:
        raise FetchError(f"{redact_url(location)}: broke off at byte {len(content)} of {answer.size}")
    return content


def _check_length(location: str, content: bytes, limit: int) -> bytes:
    if len(content) > limit:
        raise FetchError(f"{redact_url(location)}: found more than {limit} bytes, expected a small file")
    return content


def fetch_file(location: str, dest: str, size: int, sha256: str, settings: Settings) -> int:
    """Fetch one file as fetch_files does; return the bytes transferred."""
    return fetch_files([DownloadRequest(location, dest, size, sha256)], settings)


def fetch_files(
    files: Sequence[DownloadRequest],
    settings: Settings,
    progress: Callable[[Scheduler], None] | None = None,
    published: OnPublished | None = None,
) -> int:
    """Download each file to its ``dest``; return the bytes transferred.

    The bytes go to ``<dest>.partial``, which is renamed once its hash is right; the partial file of an earlier run is
    continued. Each file is published as soon as it is complete. ``progress`` receives the Scheduler, which reports the
    progress, before it starts; ``published`` receives each published file with its stat, in any thread. Raises
    FetchError, and leaves each ``dest`` that is not complete as it was.
    """
    for file in files:
        check_location(file.location)
    with ExitStack() as stack:
        growing = [stack.enter_context(Download(file, published)) for file in files]
        transferred = _transfer(growing, settings, progress)
        # An earlier partial file may have belonged to another file; such a download is repeated without it.
        again = [one for one in growing if one.discard_stale()]
        return transferred + (_transfer(again, settings, progress) if again else 0)


def _transfer(growing: Sequence[Download], settings: Settings, progress: Callable[[Scheduler], None] | None) -> int:
    # Many connections use smaller parts, because each may hold two parts in memory.
    part = max(1, min(settings.part, MEMORY // (2 * settings.connections)))
    pace = TransferLimits(
        settings.connections,
        part,
        settings.attempts,
        settings.backoff,
        settings.limit,
        settings.has_fallback,
        settings.lowest_rate,
    )
    http = http_settings(settings) if any(_is_http(one.file.location) for one in growing) else None

    def open_stream() -> Stream:
        return _SourceStream(http)

    work = Scheduler([one.job for one in growing], open_stream, pace)
    if progress:
        progress(work)
    transferred = work.run()
    for one in growing:
        one.end()
    for directory in {os.path.dirname(one.file.dest) for one in growing}:
        sync_directory(directory)
    return transferred


class _SourceStream:
    """The source that one thread reads from, a server or a disk."""

    def __init__(self, site: HttpSettings | None) -> None:
        self._disk = DiskStream()
        self._http = HttpStream(site) if site else None

    def read_part(self, part: Part, came: Callable[[int], None]) -> None:
        """Fill the buffer of a part."""
        self._of(part.job).read_part(part, came)

    def read_whole(self, part: Part, came: Callable[[int], None]) -> None:
        """Append a whole file."""
        self._of(part.job).read_whole(part, came)

    def close(self) -> None:
        """Close both sources."""
        self._disk.close()
        if self._http:
            self._http.close()

    def _of(self, job: Job) -> Stream:
        return self._http if self._http and _is_http(job.location) else self._disk


def _is_http(location: str) -> bool:
    return urllib.parse.urlsplit(location).scheme in ("http", "https")


def http_settings(settings: Settings) -> HttpSettings:
    """Return the settings for HTTP requests. Raises FetchError for an unreadable CA."""
    if settings.ca_file:
        _tls_context(settings.ca_file)
    return HttpSettings(
        functools.lru_cache(lambda: _tls_context(settings.ca_file)),
        settings.stall_timeout,
        settings.headers,
        RateFloor(settings.lowest_rate),
    )


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as exc:
            raise FetchError(f"{ca_file}: cannot be read as PEM certificates of a CA: {exc}") from exc
    return context


def check_size(location: str, found: int | None, expected: int) -> None:
    """Raise FetchError when a source reports another size of its file than the expected one (bytes)."""
    if found is not None and found != expected:
        raise FetchError(f"{redact_url(location)}: found {found} bytes, expected {expected}")
