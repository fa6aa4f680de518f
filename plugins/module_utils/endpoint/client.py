# SPDX-License-Identifier: GPL-3.0-or-later
"""A small HTTP client that records the answer and its timing, and never raises for a fault of the server.

It judges nothing. Every request ends in a Reply, whether the answer was complete, truncated, late or missing, so that
the judgement can be made (and tested) without a network.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import ssl
import time
import urllib.parse
from dataclasses import dataclass
from typing import Any, Mapping

from ..instance.api_host import LateError, unverified_tls, within
from ..instance.config_file import Processes
from ..instance.listener_host import StrangerError, check_peer

CONNECT_TIMEOUT = 5.0
# An answer to a short question has a few kilobytes; a server that sends more is not the expected one.
MAX_BYTES = 16 * 1024 * 1024
# Each one that is kept costs a hundred bytes more, and an answer may be nothing but line ends.
MAX_LINES = 200_000


class AddressError(Exception):
    """The URL or the key cannot be used; the message is the whole sentence and never holds the key."""


@dataclass(frozen=True)
class Reply:
    """The outcome of one request.

    status: the HTTP status, 0 without an answer. lines: the body's lines without their line ends, each with the
    seconds from before the connection until it was complete. seconds: until the last byte or the failure. failure: why
    the answer is missing or incomplete, as a clause; empty for a complete answer. prefill: the header of this name, in
    which a decode host names who computed the prompt. stranger: whether the port is that of somebody else, who was sent
    nothing.
    """

    status: int
    lines: tuple[tuple[float, bytes], ...]
    seconds: float
    failure: str = ""
    prefill: str = ""
    stranger: bool = False

    @property
    def body(self) -> bytes:
        """The received part of the body."""
        return b"\n".join(line for _seconds, line in self.lines)


@dataclass(frozen=True)
class Upload:
    """A form with one file, as a browser sends it: texts by their names, then the file."""

    fields: Mapping[str, str]
    name: str
    filename: str
    kind: str
    content: bytes

    def encode(self) -> tuple[str, bytes]:
        """Return the content type and the body."""
        boundary = secrets.token_hex(16)
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="'
        parts = [f'{head}{name}"\r\n\r\n{value}\r\n'.encode() for name, value in self.fields.items()]
        own = f'{head}{self.name}"; filename="{self.filename}"\r\nContent-Type: {self.kind}\r\n\r\n'
        parts += [own.encode(), self.content, f"\r\n--{boundary}--\r\n".encode()]
        return f"multipart/form-data; boundary={boundary}", b"".join(parts)


class TimedClient:
    """Requests to one server, each on its own connection; proxies of the environment are not used."""

    def __init__(
        self,
        url: str,
        api_key: str = "",
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        expected: Processes | None = None,
    ) -> None:
        """Store the server's address, without a path such as /v1; raises AddressError.

        ``headers`` go with each request. ``expected``: whose processes may answer on this host besides root's, None for
        anybody's. Where it is given, the peer is known by its process; without ``tls`` its certificate is not verified.
        """
        self.url = url.rstrip("/")
        self._parts = split_url(url)
        self._tls, self._expected = tls or (None if expected is None else unverified_tls()), expected
        self._headers = {**(headers or {}), "Connection": "close"}
        if api_key:
            # http.client's own error would quote the whole header with the key.
            if not re.match(r"[\x21-\x7e]+\Z", api_key):
                raise AddressError("the API key holds a blank, a line break or a character outside ASCII")
            self._headers["Authorization"] = f"Bearer {api_key}"

    def request(self, method: str, path: str, payload: Mapping[str, Any] | Upload | None, timeout: float) -> Reply:
        """Send payload as JSON or as a form, and return the reply after at most timeout seconds with the connection."""
        kind, body = _encode(payload)
        recorder = _Recorder(timeout)
        connection = self._connection(min(CONNECT_TIMEOUT, timeout))
        try:
            with within(timeout, connection):
                recorder.connected = True
                connection.sock.settimeout(timeout)
                if self._expected is not None:
                    check_peer(connection.sock, self._expected)
                headers = {**self._headers, "Content-Type": kind}
                connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
                recorder.record(connection.getresponse())
        except (OSError, http.client.HTTPException, _IncompleteError) as exc:
            recorder.failure = self._why(exc, recorder)
            recorder.stranger = isinstance(exc, StrangerError)
        finally:
            connection.close()
        return recorder.reply()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _why(self, exc: Exception, recorder: _Recorder) -> str:
        """Return the cause of a failure as a clause for the user."""
        if isinstance(exc, (_IncompleteError, StrangerError)):
            return str(exc)
        if isinstance(exc, LateError):
            return recorder.lateness()
        if isinstance(exc, ConnectionRefusedError):
            return f"connection refused, nothing listens on {self._parts.netloc}"
        if isinstance(exc, http.client.IncompleteRead) or recorder.status:
            return f"the connection broke off after {recorder.size} bytes of the answer"
        if isinstance(exc, (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)):
            return "the server closed the connection without an answer"
        if isinstance(exc, http.client.HTTPException):
            return f"the service on {self._parts.netloc} does not speak HTTP ({type(exc).__name__})"
        return f"no connection to {self._parts.netloc}: {exc}"


def _encode(payload: Mapping[str, Any] | Upload | None) -> tuple[str, bytes | None]:
    if isinstance(payload, Upload):
        return payload.encode()
    return "application/json", None if payload is None else json.dumps(payload).encode()


def split_url(url: str) -> urllib.parse.SplitResult:
    """Return the parts of a server's address; raises AddressError for an invalid one."""
    try:
        parts = urllib.parse.urlsplit(url)
        complete = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        complete = False
    if not complete:
        raise AddressError(f"url: {url!r} is not an address; expected something like http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise AddressError("url: holds a user or a password, which would show in logs; use api_key or api_key_file")
    if parts.query or parts.fragment:
        raise AddressError(f"url: {url!r} has a query or a fragment; expected something like http://127.0.0.1:8000")
    if parts.path.rstrip("/").endswith("/v1"):
        raise AddressError(f"url: {url!r} ends in /v1; give the server's address without it")
    return parts


class _IncompleteError(Exception):
    """The answer is incomplete; the message describes how."""


class _Recorder:
    """Read one answer before a deadline and record when each line was complete."""

    def __init__(self, timeout: float) -> None:
        self.began = time.monotonic()
        self.timeout = timeout
        self.connected = False
        self.status = 0
        self.prefill = ""
        self.size = 0
        self.lines: list[tuple[float, bytes]] = []
        self.rest = b""
        self.failure = ""
        self.stranger = False

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def lateness(self) -> str:
        if self.status:
            return f"the answer was not complete after {self.timeout:g} s ({self.size} bytes had arrived)"
        if self.connected:
            return f"no answer within {self.timeout:g} s"
        return f"no connection within {self.elapsed():.0f} s"

    def record(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.prefill = response.headers.get("prefill", "")
        while not response.isclosed():
            data = response.read1(65536)
            if not data:
                break
            self.size += len(data)
            if self.size > MAX_BYTES:
                raise _IncompleteError(f"the answer is larger than {MAX_BYTES} bytes")
            *complete, self.rest = (self.rest + data).split(b"\n")
            now = self.elapsed()
            self.lines += [(now, line) for line in complete]
            if len(self.lines) > MAX_LINES:
                raise _IncompleteError(f"the answer has more than {MAX_LINES} lines")
        if response.length:  # the rest of Content-Length never arrived
            raise _IncompleteError(f"the connection broke off after {self.size} bytes, {response.length} are missing")

    def reply(self) -> Reply:
        seconds = self.elapsed()
        last = [(seconds, self.rest)] if self.rest else []
        return Reply(self.status, tuple(self.lines + last), seconds, self.failure, self.prefill, self.stranger)
