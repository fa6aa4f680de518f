# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask hubs and mirrors: whole small answers with their status, and the hash of large files that are not kept."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping, TypeVar

from ..common.foreign_json import load_json
from ..transfer.connections import (
    RETRIED_STATUSES,
    FetchError,
    RangeConnections,
    RangeResponse,
    TransferError,
    redact_url,
)
from ..transfer.fetch import LOWEST_RATE, Settings, http_settings
from ..transfer.headers import Headers
from ..transfer.watch import RateFloor
from ..weights.manifest import WeightsError

CHUNK = 1024 * 1024
# Listings and the files beside the weights are smaller; a larger answer is not the requested one.
MAX_RESPONSE_BYTES = 64 * CHUNK
ATTEMPTS = 4

Result = TypeVar("Result")


class TooLargeError(WeightsError):
    """An answer has more bytes than the caller reads."""


@dataclass(frozen=True)
class Response:
    """An answer: the address it came from, HTTP status, headers, body."""

    url: str
    status: int
    headers: Headers
    body: bytes

    def json(self) -> Any:
        """Return the values of the body. Raises WeightsError when it is not JSON."""
        try:
            return load_json(self.body)
        except ValueError as exc:
            raise WeightsError(f"{redact_url(self.url)}: found no JSON in the answer; check the address") from exc


class RetryingClient:
    """Requests that follow redirects; ``headers`` (a token) go to the server of ``origin`` and to no other.

    May be used by several threads: each request has its own connection.
    """

    def __init__(
        self,
        origin: str,
        headers: Mapping[str, str],
        ca_file: str | None = None,
        timeout: float = 30.0,
        backoff: float = 1.0,
    ) -> None:
        self._origin, self._backoff = origin, backoff
        try:
            self._site = http_settings(Settings(ca_file=ca_file, stall_timeout=timeout, headers=headers))
            if ca_file:
                self._site.tls()
        except FetchError as exc:
            raise WeightsError(str(exc)) from exc

    def get(self, url: str, most: int = MAX_RESPONSE_BYTES) -> Response:
        """Return a whole answer of at most ``most`` bytes, whatever its status. Raises WeightsError where none comes,
        TooLargeError for a larger one."""

        def once(connections: RangeConnections, last: bool) -> Response:
            answer = connections.request_file(url, self._origin)
            body, response = _read_body(answer, url, most), answer.response
            if response.status in RETRIED_STATUSES and not last:
                raise TransferError(f"HTTP {response.status}")
            return Response(answer.url, response.status, response.headers, body)

        return self._often(url, once, lambda: 0)

    def hash(self, url: str, feed: Callable[[memoryview], None]) -> tuple[int, str]:
        """Return size and sha256 of a file of any size, whose bytes go to ``feed``; a broken connection is resumed.

        Raises WeightsError.
        """
        digest = _Digest(url, feed)

        def once(connections: RangeConnections, _last: bool) -> tuple[int, str]:
            last = digest.size - 1 if digest.length and digest.size else None
            return digest.follow(connections.request_range(url, digest.length if last else 0, last, self._origin))

        return self._often(url, once, lambda: digest.length)

    def _often(self, url: str, once: Callable[[RangeConnections, bool], Result], progress: Callable[[], int]) -> Result:
        """Retry until there is an answer, more often if some bytes have arrived. Raises WeightsError."""
        failures = 0
        while True:
            # Each request has its own lowest rate: most are small, and several threads ask at once.
            connections = RangeConnections(replace(self._site, floor=RateFloor(LOWEST_RATE)))
            before = progress()
            try:
                return once(connections, failures == ATTEMPTS - 1)
            except FetchError as exc:
                raise WeightsError(str(exc)) from exc
            except TransferError as exc:
                failures = 1 if progress() > before else failures + 1
                if failures == ATTEMPTS:
                    raise WeightsError(
                        f"{redact_url(url)}: {exc}; check the address, the proxy (https_proxy) and the network"
                    ) from exc
                time.sleep(max(exc.wait, self._backoff * 2 ** (failures - 1)))
            finally:
                connections.close()


class _Digest:
    """The hash of a file that arrives in one or several answers."""

    def __init__(self, url: str, feed: Callable[[memoryview], None]) -> None:
        self._url, self._hash, self._version, self._feed = url, hashlib.sha256(), "", feed
        self._buffer = memoryview(bytearray(CHUNK))
        self.length = 0
        self.size: int | None = None

    def follow(self, answer: RangeResponse) -> tuple[int, str]:
        """Read an answer; return size and sha256 of the file. Raises TransferError if it is not complete."""
        if self.length and (answer.offset != self.length or answer.version != self._version):
            raise WeightsError(
                f"{redact_url(self._url)}: the connection was lost and the server cannot continue the same file; "
                "try again"
            )
        self.size, self._version = answer.size, answer.version
        for count in iter(lambda: answer.read_into(self._buffer), 0):
            self._hash.update(self._buffer[:count])
            self._feed(self._buffer[:count])
            self.length += count
        if self.size is not None and self.length != self.size:
            raise TransferError("the connection breaks again and again")
        return self.length, self._hash.hexdigest()


def _read_body(answer: RangeResponse, url: str, most: int) -> bytes:
    """Return a body. Raises TooLargeError for one that is too large, TransferError for an incomplete one."""
    body = answer.read_all(most)
    if len(body) > most:
        raise TooLargeError(f"{redact_url(url)}: found more than {most} bytes, expected a smaller answer")
    if answer.size is not None and len(body) < answer.size:
        raise TransferError("the connection breaks again and again")
    return body
