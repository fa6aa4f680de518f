# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP requests for parts of files over connections that stay open: proxies, redirects, tokens and TLS of the site.

urllib closes its connection after each answer, which costs a handshake and a slow start for each part of a file.
"""

from __future__ import annotations

import base64
import http.client
import re
import socket
import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Mapping

# What a server says when it may do better in a moment.
RETRIED = (408, 425, 429, 500, 502, 503, 504)
REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5
# An answer whose rest is small is read to keep its connection.
SMALL = 64 * 1024
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class FetchError(Exception):
    """A file cannot be had; the message is the whole sentence for the user. ``status`` is HTTP's, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class TransferError(Exception):
    """The transfer broke off; another attempt may go further, after ``wait`` seconds if the server says so."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


@dataclass(frozen=True)
class Site:
    """How servers are spoken to: TLS (``tls`` None for none), seconds without a byte, headers for the first server.

    ``headers`` (a token) go to the host of the address and to no other that it redirects to.
    """

    tls: ssl.SSLContext
    timeout: float
    headers: Mapping[str, str]


@dataclass
class Answer:
    """An answer whose body is to be read: where in the file it begins, the file's whole size, and its version.

    ``size`` is None where the server does not say, ``version`` its ETag or date, empty for none. ``patience``
    is how many seconds may pass without a byte.
    """

    response: http.client.HTTPResponse
    url: str
    offset: int
    size: int | None
    version: str
    patience: float

    def read_into(self, view: memoryview) -> int:
        """Fill a buffer as far as bytes come; return their number, 0 at the end. Raises TransferError."""
        try:
            return self.response.readinto(view)
        except socket.timeout as exc:
            raise TransferError(f"no byte came for {self.patience:g} s") from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise TransferError(f"broke off: {exc}") from exc


class Connections:
    """The open connections of one thread, one to each server."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def close(self) -> None:
        """Close all of them."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def ask(self, url: str, first: int, last: int | None, origin: str, method: str = "GET") -> Answer:
        """Ask for bytes ``first`` to ``last`` (None for all of them) of a file; redirects are followed.

        ``origin`` is the address that was asked for at first, whose host gets the site's headers. Raises FetchError or
        TransferError.
        """
        for _hop in range(MAX_REDIRECTS + 1):
            response = self._request(url, first, last, origin, method)
            if response.status not in REDIRECTS:
                return self._answer(response, url, first, last)
            target = urllib.parse.urljoin(url, response.headers.get("Location", ""))
            self._drop(url, response)
            if urllib.parse.urlsplit(target).scheme not in ("http", "https"):
                raise FetchError(f"{origin}: it redirects to {target}, which is neither http nor https")
            url = target
        raise FetchError(f"{origin}: more than {MAX_REDIRECTS} redirects, the last one to {url}")

    def _request(self, url: str, first: int, last: int | None, origin: str, method: str) -> http.client.HTTPResponse:
        parts = urllib.parse.urlsplit(url)
        headers = {"Accept-Encoding": "identity", "User-Agent": "baremetal.inference"}
        if last is not None:
            headers["Range"] = f"bytes={first}-{last}"
        if parts.netloc == urllib.parse.urlsplit(origin).netloc:
            headers.update(self._site.headers)
        key = (parts.scheme, parts.netloc)
        # A server closes connections that were idle; a new one tells whether it is more than that.
        for attempt in range(2 if key in self._open else 1, 0, -1):
            try:
                return self._send(method, parts, headers)
            except (http.client.HTTPException, OSError) as exc:
                self.discard(url)
                if attempt == 1 or isinstance(exc, socket.timeout):
                    raise _failure(exc, url, self._site.timeout) from exc
        raise AssertionError("unreachable")

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
        connection.request(method, target, headers=dict(headers))
        return connection.getresponse()

    def _connect(self, parts: urllib.parse.SplitResult) -> http.client.HTTPConnection:
        host, timeout = parts.hostname or "", self._site.timeout
        proxy = "" if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme, "")
        if not proxy:
            if parts.scheme == "https":
                return http.client.HTTPSConnection(host, parts.port, timeout=timeout, context=self._site.tls)
            return http.client.HTTPConnection(host, parts.port, timeout=timeout)
        via = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        headers = {}
        if via.username:
            words = f"{urllib.parse.unquote(via.username)}:{urllib.parse.unquote(via.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(words.encode()).decode()}"
        if parts.scheme == "https":
            tunnel = http.client.HTTPSConnection(
                via.hostname or "", via.port or 8080, timeout=timeout, context=self._site.tls
            )
            tunnel.set_tunnel(host, parts.port or 443, headers)
            return tunnel
        plain = http.client.HTTPConnection(via.hostname or "", via.port or 8080, timeout=timeout)
        plain.is_plain_proxy = True  # type: ignore[attr-defined]
        return plain

    def _answer(self, response: http.client.HTTPResponse, url: str, first: int, last: int | None) -> Answer:
        version = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        length = response.headers.get("Content-Length", "")
        if response.status == 200:
            return Answer(response, url, 0, int(length) if length.isdigit() else None, version, self._site.timeout)
        found = _RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if response.status == 206 and found:
            start, end, size = int(found[1]), int(found[2]), found[3]
            if start != first or (last is not None and end > last):
                self.discard(url)
                raise FetchError(f"{url}: asked for its bytes from {first} to {last}, got those from {start} to {end}")
            return Answer(response, url, start, int(size) if size != "*" else None, version, self._site.timeout)
        self._drop(url, response)
        said = f"HTTP {response.status} {response.reason}"
        if response.status in RETRIED:
            raise TransferError(said, _retry_after(response))
        there = re.fullmatch(r"bytes \*/(\d+)", response.headers.get("Content-Range", "").strip())
        if response.status == 416 and there:
            raise FetchError(f"{url}: found {there[1]} bytes, asked for those from {first}")
        if response.status == 206:
            raise FetchError(f"{url}: {said} without a Content-Range that can be read")
        hint = "; is the token right, and not expired?" if response.status in (401, 403) else ""
        raise FetchError(f"{url}: {said}{hint}", response.status)

    def discard(self, url: str) -> None:
        """Close the connection to a server, whose answer is not read to its end."""
        parts = urllib.parse.urlsplit(url)
        connection = self._open.pop((parts.scheme, parts.netloc), None)
        if connection:
            connection.close()

    def _drop(self, url: str, response: http.client.HTTPResponse) -> None:
        """Get rid of a body that nobody wants."""
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) <= SMALL:
            response.read()
        else:
            self.discard(url)


def _retry_after(response: http.client.HTTPResponse) -> float:
    """Return how many seconds a server wants to be left alone; a date is taken for none."""
    text = response.headers.get("Retry-After", "").strip()
    return float(text) if text.isdigit() else 0.0


def _failure(reason: BaseException, url: str, timeout: float) -> Exception:
    """Return what to raise where no answer came."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return FetchError(f"{url}: the certificate is not trusted ({reason.verify_message}); name the CA in ca_file")
    if isinstance(reason, socket.timeout):
        return TransferError(f"no answer within {timeout:g} s")
    return TransferError(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)
