# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Request parts of files over persistent HTTP connections, with the site's proxies, redirects, tokens and TLS.

urllib closes its connection after each answer, which would cost a handshake and a slow start for each part of a file.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import http.client
import re
import socket
import ssl
import string
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Callable, Mapping

# Statuses after which another attempt may succeed.
RETRIED_STATUSES = (408, 425, 429, 500, 502, 503, 504)
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
# The longest accepted Retry-After in seconds; for longer waits another source, or another run, is better.
MAX_RETRY_AFTER_SECONDS = 600
# A body with at most this many bytes left is read to its end, so that its connection can be reused.
MAX_SKIPPED_BYTES = 64 * 1024
# After this many seconds the received bytes are passed on, even if few: a killed download loses no more than these.
READ_SLICE_SECONDS = 0.25
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


def redact_url(location: str) -> str:
    """Return an address that is safe for messages: without its query, user and password, which may be credentials."""
    if "://" not in location:
        return location
    scheme, _colon, rest = location.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


class FetchError(Exception):
    """A file cannot be downloaded; the message is the whole sentence for the user. ``status``: HTTP's, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class TransferError(Exception):
    """The transfer broke off; another attempt may get further, after ``wait`` seconds if the server names a time.

    ``is_answer``: the server answered, but not with the file. ``stalled``: no data came within the allowed time.
    """

    def __init__(self, message: str, wait: float = 0.0, is_answer: bool = False, stalled: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.is_answer = is_answer
        self.stalled = stalled


@dataclass(frozen=True)
class HttpSettings:
    """Settings of requests: TLS (created when needed), seconds without a byte, headers for the first server.

    ``headers`` (a token) go only to the host of the address, never to a host that it redirects to.
    """

    tls: Callable[[], ssl.SSLContext]
    timeout: float
    headers: Mapping[str, str]


@dataclass
class RangeResponse:
    """A response whose body is still to be read: its offset in the file, the file's full size, and its version.

    ``size`` is None where the server does not state it, ``version`` its ETag or date, empty for none. ``patience`` is
    the number of seconds that may pass without a byte.
    """

    response: http.client.HTTPResponse
    url: str
    offset: int
    size: int | None
    version: str
    patience: float
    failure: Exception | None = None

    def read_into(self, view: memoryview) -> int:
        """Fill a buffer with the bytes that arrive shortly; return their number, 0 at the end. Raises TransferError.

        Bytes that arrived before a connection broke count; the next call raises the error.
        """
        got, until = 0, time.monotonic() + READ_SLICE_SECONDS
        try:
            while got < len(view) and not self.failure:
                length = self._read_available(view[got:])
                got += length
                if not length or time.monotonic() > until:
                    break
        except (OSError, http.client.HTTPException, ValueError) as exc:
            self.failure = exc
        if self.failure and not got:
            stalled = isinstance(self.failure, socket.timeout)
            reason = f"no byte came for {self.patience:g} s" if stalled else f"broke off: {self.failure}"
            raise TransferError(reason, stalled=stalled) from self.failure
        return got

    def _read_available(self, view: memoryview) -> int:
        """Read the available bytes. http.client would wait for all of them, and lose those received on failure."""
        response = self.response
        if response.chunked or response.length is None or response.fp is None:
            return response.readinto(view)
        length = response.fp.readinto1(view[: response.length])
        response.length -= length
        if not response.length:
            # With nothing left, this read releases the connection.
            response.read()
        return length


class RangeConnections:
    """The open connections of one thread, one per server."""

    def __init__(self, site: HttpSettings) -> None:
        self._site = site
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def request_range(self, url: str, first: int, last: int | None, origin: str, method: str = "GET") -> RangeResponse:
        """Request bytes ``first`` to ``last`` (None for all of them) of a file, following redirects.

        ``origin`` is the address before any redirect; only its host gets the site's headers. Raises FetchError or
        TransferError.
        """
        response, url = self._follow(url, first, last, origin, method)
        linked = response.headers.get("X-Linked-Size", "")
        if response.status in REDIRECT_STATUSES and linked.isdigit():
            return RangeResponse(response, url, 0, int(linked), "", self._site.timeout)
        return self._answer(response, url, first, last)

    def request_file(self, url: str, origin: str) -> tuple[http.client.HTTPResponse, str]:
        """Request a whole file; return the response, whatever its status, and the address that it came from.

        Raises FetchError or TransferError without a response.
        """
        return self._follow(url, 0, None, origin, "GET")

    def _follow(
        self, url: str, first: int, last: int | None, origin: str, method: str
    ) -> tuple[http.client.HTTPResponse, str]:
        begun = redact_url(url)
        for _hop in range(MAX_REDIRECTS + 1):
            response = self._request(url, first, last, origin, method)
            if response.status not in REDIRECT_STATUSES:
                return response, url
            target = _redirect_target(url, response.headers.get("Location", ""))
            self.skip_body(url, response)
            if method == "HEAD" and response.headers.get("X-Linked-Size", "").isdigit():
                # A hub's redirect target is valid for some minutes, and for GET alone.
                return response, url
            if urllib.parse.urlsplit(target).scheme not in ("http", "https"):
                found = redact_url(target) or "an invalid address"
                raise FetchError(f"{begun}: it redirects to {found}, which is neither http nor https")
            url = target
        raise FetchError(f"{begun}: more than {MAX_REDIRECTS} redirects, the last one to {redact_url(url)}")

    def _request(self, url: str, first: int, last: int | None, origin: str, method: str) -> http.client.HTTPResponse:
        parts = urllib.parse.urlsplit(url)
        headers = {"Accept-Encoding": "identity", "User-Agent": "baremetal.inference"}
        if last is not None:
            headers["Range"] = f"bytes={first}-{last}"
        asked = urllib.parse.urlsplit(origin)
        if (parts.scheme, parts.netloc) == (asked.scheme, asked.netloc):
            headers.update(self._site.headers)
        key = (parts.scheme, parts.netloc)
        # A server closes idle connections; a new connection shows whether the problem is another one.
        for attempt in range(2 if key in self._open else 1, 0, -1):
            try:
                return self._send(method, parts, headers)
            except (http.client.HTTPException, OSError) as exc:
                self.close_connection(url)
                if attempt == 1 or isinstance(exc, socket.timeout):
                    raise _connection_error(exc, url, self._site.timeout) from exc
            except ValueError:
                break
        self.close_connection(url)
        # Without that error as the cause: its text may quote a token or the password of a proxy.
        raise FetchError(f"{redact_url(url)}: invalid characters or port in the address, its proxy or its token")

    def _send(
        self, method: str, parts: urllib.parse.SplitResult, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        key = (parts.scheme, parts.netloc)
        connection = self._open.get(key)
        if connection is None:
            connection = self._open[key] = self._connect(parts)
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        if getattr(connection, "is_plain_proxy", False):
            target = urllib.parse.urlunsplit(parts)
        connection.request(method, target, headers={**headers, **getattr(connection, "for_the_proxy", {})})
        return connection.getresponse()

    def _connect(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        host, timeout = parts.hostname or "", self._site.timeout
        proxy = "" if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme, "")
        if not proxy:
            if parts.scheme == "https":
                return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=self._site.tls())
            return http.client.HTTPConnection(host, parts.port, timeout=timeout)
        via = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        headers = {}
        if via.username:
            words = f"{urllib.parse.unquote(via.username)}:{urllib.parse.unquote(via.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(words.encode()).decode()}"
        if parts.scheme == "https":
            tunnel = http.client.HTTPSConnection(
                via.hostname or "", via.port or 8080, timeout=timeout, context=self._site.tls()
            )
            tunnel.set_tunnel(host, parts.port or 443, headers)
            return tunnel
        plain = http.client.HTTPConnection(via.hostname or "", via.port or 8080, timeout=timeout)
        plain.is_plain_proxy, plain.for_the_proxy = True, headers  # type: ignore[attr-defined]
        return plain

    def _answer(self, response: http.client.HTTPResponse, url: str, first: int, last: int | None) -> RangeResponse:
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        length = response.headers.get("Content-Length", "")
        if response.status == 200:
            return RangeResponse(
                response, url, 0, int(length) if length.isdigit() else None, version, self._site.timeout
            )
        found = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if response.status == 206 and found:
            start, end, size = int(found[1]), int(found[2]), found[3]
            if start != first or (last is not None and end > last):
                self.close_connection(url)
                raise FetchError(
                    f"{redact_url(url)}: asked for its bytes from {first} to {last}, got those from {start} to {end}"
                )
            return RangeResponse(response, url, start, int(size) if size != "*" else None, version, self._site.timeout)
        self.skip_body(url, response)
        said = f"HTTP {response.status} {response.reason}"
        if response.status in RETRIED_STATUSES:
            wait = _retry_after_seconds(response)
            if wait > MAX_RETRY_AFTER_SECONDS:
                raise FetchError(
                    f"{redact_url(url)}: {said}: the server asks to wait {wait:g} s; the limit is "
                    f"{MAX_RETRY_AFTER_SECONDS} s",
                    response.status,
                )
            raise TransferError(said, wait, is_answer=True)
        there = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", "").strip())
        if response.status == 416 and there:
            raise FetchError(
                f"{redact_url(url)}: found {there[1]} bytes, asked for those from {first}", response.status
            )
        if response.status == 206:
            raise FetchError(f"{redact_url(url)}: {said} without a Content-Range that can be read")
        hint = "; is the token right, and not expired?" if response.status in (401, 403) else ""
        raise FetchError(f"{redact_url(url)}: {said}{hint}", response.status)

    def close_connection(self, url: str) -> None:
        """Close the connection to a server whose response is not read to its end."""
        parts = urllib.parse.urlsplit(url)
        connection = self._open.pop((parts.scheme, parts.netloc), None)
        if connection:
            connection.close()

    def skip_body(self, url: str, response: http.client.HTTPResponse) -> None:
        """Discard a body; keep the connection where only few bytes are left."""
        if response.length is None or response.length > MAX_SKIPPED_BYTES:
            self.close_connection(url)
            return
        with contextlib.suppress(OSError, http.client.HTTPException):
            response.read()
            return
        self.close_connection(url)


def _redirect_target(url: str, location: str) -> str:
    """Return the address of a redirect, empty for an invalid one; characters beyond ASCII are percent-encoded."""
    try:
        target = urllib.parse.urljoin(url, urllib.parse.quote(location, safe=string.punctuation, encoding="iso-8859-1"))
        urllib.parse.urlsplit(target)
    except ValueError:
        return ""
    return target


def _retry_after_seconds(response: http.client.HTTPResponse) -> float:
    """Return the seconds that a server asks to wait; a date is compared with the server's own clock."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text)
        return max(0.0, (until - email.utils.parsedate_to_datetime(response.headers["Date"])).total_seconds())
    except (TypeError, ValueError, IndexError):
        return 0.0


def _connection_error(reason: BaseException, url: str, timeout: float) -> Exception:
    """Return the error for a request without a response."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return FetchError(
            f"{redact_url(url)}: the certificate is not trusted ({reason.verify_message}); name the CA in ca_file"
        )
    if isinstance(reason, http.client.InvalidURL):
        return FetchError(f"{redact_url(url)}: invalid characters in the address")
    if isinstance(reason, socket.timeout):
        return TransferError(f"no answer within {timeout:g} s", stalled=True)
    return TransferError(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)
