# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that nobody who reaches it can fill: a bounded number of connections, each for a bounded time."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from typing import Any

# More than HAProxy asks at a time, and fewer than a program may have files.
PLACES, SECONDS = 256, 5.0


class BoundedServer(socketserver.ThreadingTCPServer):
    """Serves each connection in a thread; one too many is closed, and so is one that takes longer than ``seconds``.

    A timeout of a socket begins again with each byte.
    """

    daemon_threads = True
    allow_reuse_address = True
    seconds = SECONDS

    def __init__(self, *words: Any, **named: Any) -> None:
        self.free = threading.BoundedSemaphore(PLACES)
        # Since when each connection has its place, and which one.
        self.taken: dict[Any, tuple[float, threading.BoundedSemaphore]] = {}
        super().__init__(*words, **named)

    def free_for(self, _address: str) -> threading.BoundedSemaphore:
        """Return the places that are there for an address."""
        return self.free

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if there is a place."""
        places = self.free_for(client_address[0])
        if not places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self.taken[request] = time.monotonic(), places
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can start
            self.taken.pop(request)[1].release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.taken.pop(request)[1].release()

    def service_actions(self) -> None:
        """End the connections that take too long; called again and again."""
        for request, (since, _places) in list(self.taken.items()):
            if time.monotonic() - since > self.seconds:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)
