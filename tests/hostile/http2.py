# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of HTTP/2 that ignores what does not suit it: GOAWAY, windows, resets of other streams."""

from __future__ import annotations

import socket
import struct
import time

from tests.fakes.gateways import HANGS

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
# Codes of RFC 9113.
NO_ERROR, REFUSED_STREAM = 0, 7
# The statuses of HPACK's static table.
STATUS = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}


class Http2:
    """A connection without TLS; ``statuses``, ``ended``, ``resets`` and ``bodies`` have what came back by stream."""

    def __init__(self, port, timeout=HANGS):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.next, self.unread, self.open = 1, b"", True
        self.statuses, self.ended, self.resets, self.bodies, self.blocks = {}, set(), {}, {}, {}
        self.goaways = 0
        # A window as large as it may be, so that nothing waits for this client.
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31 - 1)))
        self.socket.sendall(frame(WINDOW, 0, 0, struct.pack(">I", 2**31 - 1 - 65535)))

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.socket.close()

    def request(self, method, path, headers=(), body=b"", ends=True, pause=0.0):
        """Send a request and return its stream; ``pause`` is between its head and its body."""
        stream, self.next = self.next, self.next + 2
        block = b"".join(
            literal(name, value)
            for name, value in (
                (":method", method), (":scheme", "http"), (":authority", "gw"), (":path", path),
                *([("content-length", str(len(body)))] if body and ends else []), *headers,
            )
        )  # fmt: skip
        self.socket.sendall(frame(HEADERS, END_HEADERS | (END_STREAM if ends and not body else 0), stream, block))
        time.sleep(pause)
        for at in range(0, len(body), 16384):
            flags = END_STREAM if ends and at + 16384 >= len(body) else 0
            self.socket.sendall(frame(DATA, flags, stream, body[at : at + 16384]))
        return stream

    def read(self, until, seconds=HANGS):
        """Read frames until ``until()`` or the end of the connection; return whether it came to be."""
        end = time.monotonic() + seconds
        while self.open and not until() and time.monotonic() < end:
            self.socket.settimeout(max(0.01, end - time.monotonic()))
            try:
                part = self.socket.recv(262144)
            except OSError:
                continue
            self.open = bool(part)
            self.unread += part
            while len(self.unread) >= 9:
                length = int.from_bytes(self.unread[:3], "big")
                if len(self.unread) < 9 + length:
                    break
                kind, flags, stream = self.unread[3], self.unread[4], int.from_bytes(self.unread[5:9], "big")
                self._take(kind, flags, stream & (2**31 - 1), self.unread[9 : 9 + length])
                self.unread = self.unread[9 + length :]
        return until()

    def status(self, stream, seconds=HANGS):
        """Return the status of a stream as soon as it is there, None for a stream without one."""
        self.read(lambda: stream in self.statuses or stream in self.resets, seconds)
        return self.statuses.get(stream)

    def finished(self, stream, seconds=HANGS):
        """Return whether the answer of a stream came to its end without a reset that is an error."""
        self.read(lambda: stream in self.ended or stream in self.resets, seconds)
        return stream in self.ended and self.resets.get(stream, NO_ERROR) == NO_ERROR

    def _take(self, kind, flags, stream, payload):
        if kind == HEADERS:
            self.blocks.setdefault(stream, payload)
            self.statuses.setdefault(stream, status_of(payload))
        elif kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + payload
        elif kind == RESET:
            self.resets.setdefault(stream, int.from_bytes(payload, "big"))
        elif kind == GOAWAY:
            self.goaways += 1
        elif kind in (SETTINGS, PING) and not flags & ACK:
            self.socket.sendall(frame(kind, ACK, 0, payload if kind == PING else b""))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.ended.add(stream)


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name, value):
    """Return a header without indexing and without Huffman's code."""
    return b"\0" + b"".join(_integer(len(text)) + text for text in (name.encode("latin-1"), value.encode("latin-1")))


def _integer(number):
    if number < 127:
        return bytes([number])
    found, number = b"\x7f", number - 127
    while number >= 128:
        found, number = found + bytes([number % 128 | 128]), number // 128
    return found + bytes([number])


def status_of(block):
    """Return the status that begins a block of headers as HAProxy writes it."""
    while block and block[0] & 0xE0 == 0x20:  # a change of the table's size
        block = block[1:]
    return STATUS[block[0]] if block[0] in STATUS else int(block[2:5])
