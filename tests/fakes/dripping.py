# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers whose answer never ends though bytes arrive, so that no timeout of a socket ends it."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Iterator

# What is sent once, what is repeated, and the seconds between.
DRIPS = {
    "status": (b"HTTP/1.1 200 ", b"x", 0.1),
    "header": (b"HTTP/1.1 200 OK\r\nX-", b"x", 0.1),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.001),
    "chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x", 0.1),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n", 0.1),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x", 0.1),
}


@contextlib.contextmanager
def dripping(name: str) -> Iterator[str]:
    """Yield host and port of a server that answers every request with one of DRIPS."""
    (head, piece, pause), ended = DRIPS[name], threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(head)
            while not ended.wait(pause):
                connection.sendall(piece)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
