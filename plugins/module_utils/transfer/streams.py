# SPDX-License-Identifier: GPL-3.0-or-later
"""The sources of parts of files: a server over HTTP, or a disk."""

from __future__ import annotations

import os
import urllib.parse
import urllib.request
from typing import Callable

from ..common.files_host import open_regular
from .connections import FetchError, HttpSettings, RangeConnections, RangeResponse, TransferError, redact_url
from .headers import is_other_version
from .scheduler import Job, Part, WholeOnlyError

# The bytes to read at once, then hash and write: file systems handle one large piece better than many small ones.
PIECE = 1024 * 1024
OnBytes = Callable[[int], None]


class HttpStream:
    """Parts of files from servers, over persistent connections."""

    def __init__(self, site: HttpSettings) -> None:
        self._connections = RangeConnections(site)

    def close(self) -> None:
        """Close its connections."""
        self._connections.close()

    def read_part(self, part: Part, came: OnBytes) -> None:
        """Fill the buffer of a part from ``part.got`` on."""
        job, first = part.job, part.offset + part.got
        # A small file needs no range, and not every server supports ranges.
        is_all = first == 0 and part.length == job.size
        answer = self._ask(job, first, None if is_all else part.offset + part.length - 1)
        try:
            if answer.offset != first or (not is_all and answer.response.status == 200):
                if job.resolved and not part.got:
                    raise FetchError(
                        f"{redact_url(job.location)}: {redact_url(answer.url)} served parts of the file before, "
                        "now it does not"
                    )
                raise WholeOnlyError
            job.resolved = answer.url
            with memoryview(part.buffer) as view:
                while part.got < part.length:
                    length = answer.read_into(view[part.got : _piece_end(part)])
                    if not length:
                        raise TransferError(f"broke off at byte {part.offset + part.got} of {job.size}")
                    part.got += length
                    came(length)
            if is_all:
                _check_end(job, answer)
        except BaseException:
            self._connections.close_connection(answer.url)
            raise

    def read_whole(self, part: Part, came: OnBytes) -> None:
        """Append the whole file, through the buffer of the part."""
        job = part.job
        answer = self._ask(job, 0, None)
        try:
            with memoryview(part.buffer) as view:
                while job.target.length < job.size:
                    length = answer.read_into(view[: min(PIECE, len(view), job.size - job.target.length)])
                    if not length:
                        raise TransferError(f"broke off at byte {job.target.length} of {job.size}")
                    job.target.append(view[:length])
                    came(length)
            _check_end(job, answer)
        except BaseException:
            self._connections.close_connection(answer.url)
            raise

    def _ask(self, job: Job, first: int, last: int | None) -> RangeResponse:
        """Request the address where the file was found last; if that fails, request its own address again."""
        origin = job.location
        try:
            answer = self._connections.request_range(job.resolved or origin, first, last, origin)
        except TransferError:
            job.resolved = job.resolved and origin
            raise
        except FetchError:
            # The last address may have been signed for some minutes only.
            if job.resolved in ("", origin):
                raise
            answer = self._connections.request_range(origin, first, last, origin)
        if answer.size is not None and answer.size != job.size:
            self._connections.close_connection(answer.url)
            raise FetchError(f"{redact_url(origin)}: found {answer.size} bytes, expected {job.size}")
        if is_other_version(job.version, answer.version):
            self._connections.close_connection(answer.url)
            raise FetchError(f"{redact_url(origin)}: it was changed on the server while it was fetched")
        job.version = answer.version or job.version
        return answer


def _piece_end(part: Part) -> int:
    """Return the end of the next piece in a part: after a slow piece, the others keep their usual ends."""
    return min(part.got // PIECE * PIECE + PIECE, part.length)


def _check_end(job: Job, answer: RangeResponse) -> None:
    """Raise FetchError where the server sends more than the file's size."""
    if answer.read_into(memoryview(bytearray(1))):
        raise FetchError(f"{redact_url(job.location)}: it continues after {job.size} bytes, the expected size")


class DiskStream:
    """Parts of files from a path or a file:// address."""

    def __init__(self) -> None:
        self._path = ""
        self._descriptor = -1

    def close(self) -> None:
        """Close the open file, if any."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read_part(self, part: Part, came: OnBytes) -> None:
        """Fill the buffer of a part."""
        job = part.job
        try:
            self._open(disk_path(job.location))
            size = os.fstat(self._descriptor).st_size
            if size != job.size:
                raise FetchError(f"{redact_url(job.location)}: found {size} bytes, expected {job.size}")
            job.resolved = job.location
            with memoryview(part.buffer) as view:
                while part.got < part.length:
                    piece = view[part.got : _piece_end(part)]
                    length = os.preadv(self._descriptor, [piece], part.offset + part.got)
                    if not length:
                        raise FetchError(f"{redact_url(job.location)}: it has become shorter than {job.size} bytes")
                    part.got += length
                    came(length)
        except OSError as exc:
            raise FetchError(f"{redact_url(job.location)}: {exc.strerror}") from exc

    def read_whole(self, part: Part, came: OnBytes) -> None:
        """Raise an error: a disk always serves parts."""
        raise NotImplementedError

    def _open(self, path: str) -> None:
        if path != self._path or self._descriptor < 0:
            self.close()
            self._descriptor, self._path = open_regular(path, os.O_RDONLY), path


def disk_path(location: str) -> str:
    """Return the path of a file:// address; a path is returned unchanged."""
    if location[:6].lower() != "file:/":
        return location
    return urllib.request.url2pathname(urllib.parse.urlsplit(location).path)
