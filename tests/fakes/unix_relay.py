# SPDX-License-Identifier: GPL-3.0-or-later
"""A Unix socket in front of a server that has a port."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from typing import Iterator


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for part in iter(lambda: source.recv(65536), b""):
            target.sendall(part)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def at_a_socket(address: str) -> Iterator[str]:
    """Yield the path of a socket whose connections go to HOST:PORT."""
    host, _colon, port = address.partition(":")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, server = listener.accept()[0], socket.create_connection((host, int(port)))
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()

    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = os.path.join(directory, "socket")
        listener.bind(path)
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
