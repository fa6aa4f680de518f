# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask an instance on this host, and the one rule for its certificate, which every client of instances follows."""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from typing import Iterator, Mapping

from .config_file import Listening
from .listener_host import check_peer

MAX_BYTES = 8 * 1024 * 1024
# A page of MAX_BYTES in packets of Ethernet has 6,000 parts.
_MOST_PARTS = 20_000


class NoAnswerError(OSError):
    """The instance did not answer as a server of HTTP does; the message is the reason."""


class LateError(NoAnswerError, TimeoutError):
    """The answer was not complete in time."""


@dataclass(frozen=True)
class Answer:
    """Status, headers and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")


def ask(
    listening: Listening,
    method: str,
    path: str,
    timeout: float,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Return an answer that is complete within ``timeout`` seconds. Raises OSError.

    ConnectionRefusedError means that nothing listens, StrangerError that another user does, who is sent nothing. Of a
    larger body than MAX_BYTES the rest is not read.
    """
    given = {"Connection": "close", **({"Content-Type": "application/json"} if body else {}), **(headers or {})}
    with contextlib.closing(_connection(listening, timeout)) as connection:
        try:
            with within(timeout, connection):
                check_peer(connection.sock, listening.expected)
                connection.request(method, path, body, given)
                reply = connection.getresponse()
                found = read_body(reply, MAX_BYTES)
                if reply.length and len(found) < MAX_BYTES:
                    raise http.client.IncompleteRead(found, reply.length)
                # A message in place of a mapping: names of headers do not depend on case.
                return Answer(reply.status, reply.headers, found)  # type: ignore[arg-type]
        except (ValueError, http.client.HTTPException) as exc:
            raise NoAnswerError(f"{method} {path}: {exc or type(exc).__name__}") from exc


def read_body(reply: http.client.HTTPResponse, most: int) -> bytes:
    """Return at most so many bytes of a body. Raises ValueError, OSError and HTTPException.

    HTTPResponse.read keeps an object for each chunk, which may have one byte: a hundred times the memory of the body.
    """
    if not reply.chunked:
        return reply.read(most)
    body = bytearray()
    for _part in range(_MOST_PARTS):
        part = reply.read1(min(65536, most - len(body)))
        if not part:
            return bytes(body)
        body += part
    raise ValueError("its answer has too many chunks")


@functools.lru_cache(maxsize=None)
def unverified_tls() -> ssl.SSLContext:
    """Return a TLS context that verifies nothing, for an instance on this host: its certificate has another name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _connection(listening: Listening, timeout: float) -> http.client.HTTPConnection:
    if listening.tls:
        return http.client.HTTPSConnection(listening.address, listening.port, timeout=timeout, context=unverified_tls())
    return http.client.HTTPConnection(listening.address, listening.port, timeout=timeout)


@contextlib.contextmanager
def within(seconds: float, connection: http.client.HTTPConnection) -> Iterator[None]:
    """Connect, and break the connection off after ``seconds``: a timeout of a socket begins again with each byte.

    Raises LateError at the end of the block if that was too late.
    """
    began, late = time.monotonic(), threading.Event()
    problem = LateError(f"no complete answer within {seconds:g} s")
    try:
        connection.connect()
    except socket.timeout as exc:
        raise problem from exc
    opened = connection.sock

    def break_off() -> None:
        late.set()
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, seconds - (time.monotonic() - began)), break_off)
    timer.daemon = True
    timer.start()
    try:
        yield
    except socket.timeout as exc:
        raise problem from exc
    finally:
        timer.cancel()
        if late.is_set():
            raise problem
