# SPDX-License-Identifier: GPL-3.0-or-later
"""Request parts of files over persistent HTTP connections, with the site's proxies, redirects, tokens and TLS.

urllib closes its connection after each answer, which would cost a handshake and a slow start for each part of a file.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import re
import socket
import ssl
import string
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Callable, Mapping

from ..common.foreign_text import escape_controls, quote_foreign
from .headers import read_content_range, read_number, read_refused_size, read_retry_after, read_version
from .watch import RateFloor, SourceTooSlowError, Watch, WatchedResponse

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
# The characters of an address that a message shows.
MAX_SHOWN_ADDRESS = 500
# OpenSSL's codes for a certificate whose authority this host does not know: X509_V_ERR_* in x509_vfy.h.
UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21, 27)


def redact_url(location: str) -> str:
    """Return an address that is safe for messages: without its query, user and password, which may be credentials."""
    if "://" not in location:
        return location
    scheme, _colon, rest = location.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return quote_foreign(f"{scheme}://{host.rpartition('@')[2]}{slash}{path}", MAX_SHOWN_ADDRESS)


class FetchError(Exception):
    """A file cannot be downloaded; the message is the whole sentence for the user. ``status``: HTTP's, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(escape_controls(message))
        self.status = status


class TransferError(Exception):
    """The transfer broke off; another attempt may get further, after ``wait`` seconds if the server names a time.

    ``is_answer``: the server answered, but not with the file. ``stalled``: no data came within the allowed time.
    """

    def __init__(self, message: str, wait: float = 0.0, is_answer: bool = False, stalled: bool = False) -> None:
        super().__init__(escape_controls(message))
        self.wait = wait
        self.is_answer = is_answer
        self.stalled = stalled


@dataclass(frozen=True)
class HttpSettings:
    """Settings of requests: TLS (created when needed), seconds without a byte, headers for the first server.

    ``headers`` (a token) go only to the host of the address, never to a host that it redirects to. ``floor`` is the
    lowest accepted rate of all connections that share it.
    """

    tls: Callable[[], ssl.SSLContext]
    timeout: float
    headers: Mapping[str, str]
    floor: RateFloor = field(default_factory=RateFloor)


@dataclass
class RangeResponse:
    """A response whose body was not read yet: its offset in the file, the file's full size, and its version.

    ``size`` is None where the server does not state it, ``version`` its ETag or date, empty for none. ``patience`` is
    the number of seconds that may pass without a byte.
    """

    response: http.client.HTTPResponse
    url: str
    offset: int
    size: int | None
    version: str
    patience: float
    watch: Watch
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
        except (OSError, http.client.HTTPException, ValueError, OverflowError) as exc:
            self.failure = exc
        if self.failure and not got:
            if isinstance(self.failure, SourceTooSlowError):
                raise FetchError(f"{redact_url(self.url)}: {self.failure}") from self.failure
            stalled = isinstance(self.failure, socket.timeout)
            reason = f"no data arrived for {self.patience:g} s" if stalled else f"broke off: {_describe(self.failure)}"
            raise TransferError(reason, stalled=stalled) from self.failure
        return got

    def read_all(self, most: int) -> bytes:
        """Return what is left, but not more than one byte beyond ``most``. Raises FetchError or TransferError."""
        content, piece = bytearray(), memoryview(bytearray(min(most + 1, MAX_SKIPPED_BYTES)))
        while len(content) <= most:
            length = self.read_into(piece[: most + 1 - len(content)])
            if not length:
                break
            content += piece[:length]
        return bytes(content)

    def _read_available(self, view: memoryview) -> int:
        """Read the available bytes. http.client would wait for all of them, and lose those received on failure."""
        response = self.response
        self.watch.allow(self.patience)
        if response.fp is None:
            return 0
        if response.chunked:
            content = response.read1(len(view))
            view[: len(content)] = content
            return len(content)
        if response.length is None:
            return response.fp.readinto1(view)
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
        self._watch = Watch(site.floor)
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
        linked = read_number(response.headers.get("X-Linked-Size"))
        if response.status in REDIRECT_STATUSES and linked is not None:
            return self._opened(response, url, 0, linked)
        return self._answer(response, url, first, last, origin)

    def request_file(self, url: str, origin: str) -> RangeResponse:
        """Request a whole file; return the response, whatever its status.

        Raises FetchError or TransferError without a response.
        """
        response, url = self._follow(url, 0, None, origin, "GET")
        return self._opened(response, url, 0, read_number(response.headers.get("Content-Length")))

    def _opened(self, response: http.client.HTTPResponse, url: str, offset: int, size: int | None) -> RangeResponse:
        version = read_version(response.headers)
        return RangeResponse(response, url, offset, size, version, self._site.timeout, self._watch)

    def _follow(
        self, url: str, first: int, last: int | None, origin: str, method: str
    ) -> tuple[http.client.HTTPResponse, str]:
        begun = redact_url(url)
        for _hop in range(MAX_REDIRECTS + 1):
            try:
                response = self._request(url, first, last, origin, method)
            except (ValueError, OverflowError):
                # Raised without the cause, as below.
                raise FetchError(f"{redact_url(url)}: invalid characters or port in the address") from None
            if response.status not in REDIRECT_STATUSES:
                return response, url
            target = _redirect_target(url, response.headers.get("Location", ""))
            self.skip_body(url, response)
            if method == "HEAD" and read_number(response.headers.get("X-Linked-Size")) is not None:
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
        if _is_of(url, origin):
            headers.update(self._site.headers)
        key = (parts.scheme, parts.netloc)
        # A server closes idle connections; a new connection shows whether the problem is another one.
        for attempt in range(2 if key in self._open else 1, 0, -1):
            try:
                return self._send(method, parts, headers)
            except (http.client.HTTPException, OSError) as exc:
                self.close_connection(url)
                if attempt == 1 or isinstance(exc, (socket.timeout, SourceTooSlowError)):
                    raise _connection_error(exc, url, self._site.timeout) from exc
            except (ValueError, OverflowError):
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
            connection.response_class = functools.partial(  # type: ignore[assignment]
                WatchedResponse, watch=self._watch
            )
            # The socket limits the connection itself; this is for the answer of a proxy behind it.
            self._watch.allow(2 * self._site.timeout)
            connection.connect()
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        if getattr(connection, "is_plain_proxy", False):
            target = urllib.parse.urlunsplit(parts)
        # For the whole head, and for what comes before it (100 Continue): not one timeout for each byte.
        self._watch.allow(self._site.timeout)
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

    def _answer(
        self, response: http.client.HTTPResponse, url: str, first: int, last: int | None, origin: str
    ) -> RangeResponse:
        if response.status == 200:
            return self._opened(response, url, 0, read_number(response.headers.get("Content-Length")))
        found = read_content_range(response.headers.get("Content-Range"))
        if response.status == 206 and found:
            if found.first != first or (last is not None and found.last > last):
                self.close_connection(url)
                raise FetchError(
                    f"{redact_url(url)}: requested its bytes {first} to {last}, got {found.first} to {found.last}"
                )
            return self._opened(response, url, found.first, found.size)
        self.skip_body(url, response)
        said = f"HTTP {response.status} {quote_foreign(response.reason)}"
        if response.status in RETRIED_STATUSES:
            wait = read_retry_after(response.headers)
            if wait > MAX_RETRY_AFTER_SECONDS:
                raise FetchError(
                    f"{redact_url(url)}: {said}: the server asks to wait {wait:.0f} s; the limit is "
                    f"{MAX_RETRY_AFTER_SECONDS} s",
                    response.status,
                )
            raise TransferError(said, wait, is_answer=True)
        there = read_refused_size(response.headers.get("Content-Range"))
        if response.status == 416 and there is not None:
            raise FetchError(f"{redact_url(url)}: found {there} bytes, asked for those from {first}", response.status)
        if response.status == 206:
            raise FetchError(f"{redact_url(url)}: {said} without a valid Content-Range")
        token, code = "Authorization" in self._site.headers, response.headers.get("X-Error-Code", "")
        hint = _refusal_hint(response.status, code, token, "" if _is_of(url, origin) else redact_url(origin))
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
        self._watch.allow(self._site.timeout)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, OverflowError):
            response.read()
            return
        self.close_connection(url)


def _is_of(url: str, origin: str) -> bool:
    """Return whether an address is on the server of another one."""
    there, asked = urllib.parse.urlsplit(url), urllib.parse.urlsplit(origin)
    return (there.scheme, there.netloc) == (asked.scheme, asked.netloc)


def _redirect_target(url: str, location: str) -> str:
    """Return the address of a redirect, empty for an invalid one; characters beyond ASCII are percent-encoded."""
    try:
        target = urllib.parse.urljoin(url, urllib.parse.quote(location, safe=string.punctuation, encoding="iso-8859-1"))
        urllib.parse.urlsplit(target)
    except ValueError:
        return ""
    return target


def _connection_error(reason: BaseException, url: str, timeout: float) -> Exception:
    """Return the error for a request without a response."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return FetchError(f"{redact_url(url)}: {_describe_certificate(reason)}")
    if isinstance(reason, http.client.InvalidURL):
        return FetchError(f"{redact_url(url)}: invalid characters in the address")
    if isinstance(reason, SourceTooSlowError):
        return FetchError(f"{redact_url(url)}: {reason}")
    if isinstance(reason, socket.timeout):
        return TransferError(f"no answer within {timeout:g} s", stalled=True)
    return TransferError(_describe(reason))


def _describe_certificate(reason: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong with a certificate, and what to do; another authority helps against some faults only."""
    found = quote_foreign(reason.verify_message)
    if reason.verify_code in UNKNOWN_AUTHORITY:
        return f"the certificate is not trusted ({found}); name the CA in the variable that ends in _ca_file"
    return f"the certificate is not valid ({found}); check the server's certificate, its name and this host's clock"


def _describe(reason: BaseException) -> str:
    """Return an error of a connection for a message; it may quote what the server sent."""
    return quote_foreign(getattr(reason, "strerror", None) or str(reason) or type(reason).__name__)


def _refusal_hint(status: int, code: str, token: bool, origin: str) -> str:
    """Return what a refusal may mean.

    ``code`` is the hub's X-Error-Code, ``token`` whether the site gave one, ``origin`` the address that redirected to
    another server, empty for none.
    """
    if status not in (401, 403):
        return ""
    if code == "GatedRepo" and token:
        return "; the model is gated and the token's account has no access: ask for it on the model's page"
    if code == "GatedRepo":
        return "; the model is gated and no token was given: accept its terms on the model's page, and set HF_TOKEN"
    if origin:
        return f"; {origin} redirects there, and no token goes along: its link may have expired"
    if status == 401 and not token:
        return "; it needs a token, and none was given"
    if status == 403 and token:
        return (
            "; the token has no access: ask for it on the model's page, and let a fine-grained token read gated "
            "repositories in its settings"
        )
    return "; is the token right, and not expired?"
