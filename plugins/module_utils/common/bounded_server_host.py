# SPDX-License-Identifier: GPL-3.0-or-later
"""A server that nobody who reaches it can fill: a bounded number of connections, each for a bounded time."""

import collections
import contextlib
import ipaddress
import socket
import socketserver
import sys
import threading
import time
from typing import Any, NamedTuple

# More than HAProxy asks at a time, and fewer than a program may have files.
PLACES, SECONDS = 256, 5.0


class Place(NamedTuple):
    """Since when a connection has its place, which kind of place it is, and which peer has it."""

    since: float
    places: threading.BoundedSemaphore
    peer: str


def peer_of(address: str) -> str:
    """Return what counts as one peer: an address of IPv4, or the 64 bits of one of IPv6 that a host has.

    So do all addresses of loopback: any user of this host has 16 million of them.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None) or found
    if mapped.is_loopback:
        return "loopback"
    return str(mapped) if mapped.version == 4 else str(ipaddress.ip_network((mapped, 64), strict=False))


class BoundedServer(socketserver.ThreadingTCPServer):
    """Serves each connection in a thread, and ends one that takes longer than ``seconds``.

    A timeout of a socket begins again with each byte. Where all places are taken, a new connection gets the one that
    has been held for longest by the peer that has most of them, so holding connections keeps nobody out.
    """

    daemon_threads = True
    allow_reuse_address = True
    seconds = SECONDS

    def __init__(self, *words: Any, **named: Any) -> None:
        self.free = threading.BoundedSemaphore(PLACES)
        self.taken: dict[Any, Place] = {}
        # Connections that have lost their place, until their threads have seen it; and those that keep theirs.
        self.leaving: set[Any] = set()
        self.kept: set[Any] = set()
        super().__init__(*words, **named)

    def free_for(self, _address: str) -> threading.BoundedSemaphore:
        """Return the places that are there for an address."""
        return self.free

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if there is a place."""
        places = self.free_for(client_address[0])
        if not (places.acquire(blocking=False) or self._vacated(places)):
            self.shutdown_request(request)
            return
        self.taken[request] = Place(time.monotonic(), places, peer_of(client_address[0]))
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can start
            self._leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _vacated(self, places: threading.BoundedSemaphore) -> bool:
        """End a connection, and return whether its place is taken from it; or one has become free meanwhile."""
        held = [(request, place) for request, place in list(self.taken.items()) if place.places is places]
        number = collections.Counter(place.peer for _request, place in held)
        found = [each for each in held if each[0] not in self.kept]
        if len(self.leaving) < PLACES and found:
            request = min(found, key=lambda each: (-number[each[1].peer], each[1].since))[0]
            self.leaving.add(request)
            if self.taken.pop(request, None):
                _end(request)
                return True
            self.leaving.discard(request)
        return places.acquire(blocking=False)

    def _leave(self, request: Any) -> None:
        """Release the place of a connection, unless another one has it."""
        place = self.taken.pop(request, None)
        if place:
            place.places.release()
        self.leaving.discard(request)
        self.kept.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error of a connection, but not that it has ended: else anybody could fill the journal."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def service_actions(self) -> None:
        """End the connections that take too long; called again and again."""
        for request, place in list(self.taken.items()):
            if time.monotonic() - place.since > self.seconds:
                _end(request)


def _end(request: Any) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
