# SPDX-License-Identifier: GPL-3.0-or-later
"""Limit how long a server may take: a deadline for each step of an answer, and a lowest rate over all connections.

A timeout of a socket starts again with each byte. A server that sends one byte now and then would hold it forever.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from http.client import CONTINUE, NO_CONTENT, NOT_MODIFIED, HTTPException, HTTPResponse, LineTooLong, UnknownProtocol
from typing import Any, Callable

from .headers import HeadFields, read_number

# The rate is measured over this many seconds.
WINDOW_SECONDS = 60.0
# The limits of http.client.
MAX_LINE, MAX_FIELDS = 65536, 100


class SourceTooSlowError(OSError):
    """A source sends less than the lowest accepted rate; the message has the bytes and the time."""


class RateFloor:
    """The lowest accepted rate of all connections to a source, in bytes per second; 0 for none.

    Only time counts in which a connection waits for the source: a slow disk of this host is not the source's fault.
    """

    def __init__(self, lowest: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._lowest, self._window, self._clock = lowest, WINDOW_SECONDS, clock
        self._lock = threading.Lock()
        self._waiting = 0
        self._since = self._waited = 0.0
        self._came = 0

    def begin(self) -> None:
        """Note that a connection waits for the source."""
        with self._lock:
            if not self._waiting:
                self._since = self._clock()
            self._waiting += 1

    def end(self, length: int) -> None:
        """Note that a connection has received bytes, or waits no longer."""
        with self._lock:
            self._waiting -= 1
            self._came += length
            if not self._waiting:
                self._waited += self._clock() - self._since

    def seconds_left(self) -> float:
        """Return the seconds of waiting until the rate is judged. Raises SourceTooSlowError where it is too low."""
        if not self._lowest:
            return float("inf")
        with self._lock:
            now = self._clock()
            waited = self._waited + (now - self._since if self._waiting else 0.0)
            if waited >= self._window:
                if self._came < self._lowest * self._window:
                    raise SourceTooSlowError(
                        f"only {self._came} bytes arrived in {waited:.0f} s, expected {self._lowest} bytes/s or more"
                    )
                self._since, self._waited, self._came, waited = now, 0.0, 0, 0.0
            return self._window - waited


class Watch:
    """The limits of a thread's current step: its deadline, and the lowest rate of the source."""

    def __init__(self, floor: RateFloor) -> None:
        self.floor = floor
        self.deadline = float("inf")

    def allow(self, seconds: float) -> None:
        """Begin a step that may take this many seconds."""
        self.deadline = time.monotonic() + seconds


class WatchedResponse(HTTPResponse):
    """An answer whose reads end at the deadline of a watch, however steadily single bytes arrive.

    Its head is read without http.client's parser of mails, which takes half of the time of a small file.
    """

    def __init__(self, sock: socket.socket, *args: Any, watch: Watch, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp: Any = io.BufferedReader(_WatchedReader(self.fp.detach(), sock, watch))

    def begin(self, **_options: Any) -> None:
        """Read the head, as http.client does. Raises HTTPException or OSError."""
        while True:
            version, status, reason = self._read_status()  # type: ignore[attr-defined]
            if status != CONTINUE:
                break
            self._read_lines()
        if not version.startswith(("HTTP/1.", "HTTP/0.9")):
            raise UnknownProtocol(version)
        self.code = self.status = status
        self.reason = reason.strip()
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        fields = self.headers = self.msg = HeadFields(self._read_lines())  # type: ignore[assignment]
        self.chunked = (fields.get("transfer-encoding") or "").lower() == "chunked"
        self.chunk_left = None
        self.length = None if self.chunked else read_number(fields.get("content-length"))
        if status in (NO_CONTENT, NOT_MODIFIED) or status < 200 or self._method == "HEAD":  # type: ignore[attr-defined]
            self.length = 0
        closes = self._check_close()  # type: ignore[attr-defined]
        self.will_close = closes or (not self.chunked and self.length is None)

    def _read_lines(self) -> list[bytes]:
        """Return the lines of a head up to the empty one."""
        lines: list[bytes] = []
        while len(lines) <= MAX_FIELDS:
            line = self.fp.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                raise LineTooLong("header line")
            if line in (b"\r\n", b"\n", b""):
                return lines
            lines.append(line)
        raise HTTPException(f"got more than {MAX_FIELDS} headers")


class _WatchedReader(io.RawIOBase):
    """The bytes of a socket, read under a watch. ``opened`` keeps the socket open, as http.client needs it."""

    def __init__(self, opened: io.RawIOBase, connection: socket.socket, watch: Watch) -> None:
        super().__init__()
        self._opened, self._socket, self._watch = opened, connection, watch

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._opened.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived. Raises socket.timeout at the deadline, SourceTooSlowError, and the socket's errors."""
        watch, usual, got = self._watch, self._socket.gettimeout(), 0
        watch.floor.begin()
        try:
            while True:
                now = time.monotonic()
                seconds = min(watch.deadline - now, watch.floor.seconds_left())
                if watch.deadline <= now:
                    raise socket.timeout("timed out")
                is_short = usual is None or seconds < usual
                if is_short:
                    self._socket.settimeout(max(seconds, 0.001))
                try:
                    got = self._socket.recv_into(buffer)
                    return got
                except socket.timeout:
                    # Either the deadline is over, or only the time has come to judge the rate.
                    continue
                finally:
                    if is_short:
                        self._socket.settimeout(usual)
        finally:
            watch.floor.end(got)
