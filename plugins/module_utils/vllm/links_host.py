# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between the hosts of a group, tried before vLLM starts: TCP, the size of packets, and clocks.

One host listens for a while, the others connect. What listens answers members only, with the time and with the size of
what arrived, and it ends by itself.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import select
import socket
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Sequence

# Linux's numbers of IP_MTU_DISCOVER and IPV6_MTU_DISCOVER, which Python's socket does not have, and of "never split a
# packet, and do not believe what was learnt about the path before".
_MTU_DISCOVER, _PROBE = {socket.AF_INET: 10, socket.AF_INET6: 23}, 3
# Bytes of the headers before the data of a UDP packet.
_HEADERS = {socket.AF_INET: 28, socket.AF_INET6: 48}
# Sizes of packets that are tried where the interface's own does not get through.
COMMON_MTUS = (9000, 4096, 4092, 2044, 1500, 1450, 1400, 1280)
_TRIES, _WAIT = 3, 0.5
_DONE = b"done\n"
_TIME = re.compile(r"[0-9]{1,12}\.[0-9]{6}", re.ASCII)


class LinkError(Exception):
    """This host cannot listen; the message is the whole sentence."""


@dataclass(frozen=True)
class Link:
    """What was found out about the way to one host: the reason why it is not reached, else figures.

    ``clock`` is by how many seconds the other clock is ahead, ``mtu`` the largest packet that got through whole (0 if
    none of those tried did).
    """

    problem: str = ""
    seconds: float = 0.0
    clock: float = 0.0
    mtu: int = 0


def listen(addresses: Iterable[str], port: int) -> list[socket.socket]:
    """Return sockets for TCP and UDP at a port of each address. Raises LinkError."""
    found = []
    for address in addresses:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            opened = socket.socket(_family(address), kind)
            # What an earlier, failed run has left may listen beside it, and gives the same answers.
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try:
                opened.bind((address, port))
                if kind == socket.SOCK_STREAM:
                    opened.listen(64)
            except (OSError, OverflowError) as exc:
                raise LinkError(f"cannot listen at {address} port {port}: {_reason(exc)}") from exc
            found.append(opened)
    return found


def answer(sockets: Sequence[socket.socket], members: Iterable[str], seconds: float) -> None:
    """Answer members until each has said that it is done, at most for some seconds; others get no answer."""
    allowed, end = set(members), time.monotonic() + seconds
    waiting = set(allowed)
    while waiting and time.monotonic() < end:
        ready, _writable, _failed = select.select(sockets, [], [], max(0.0, end - time.monotonic()))
        for each in ready:
            with contextlib.suppress(OSError):
                if each.type == socket.SOCK_DGRAM:
                    data, peer = each.recvfrom(65535)
                    if peer[0] in allowed:
                        each.sendto(str(len(data)).encode(), peer)
                else:
                    waiting -= _answer_connection(each, allowed)
    for each in sockets:
        each.close()


def _answer_connection(listener: socket.socket, allowed: set[str]) -> set[str]:
    """Tell the time to a member; return its address where it is done."""
    connection, peer = listener.accept()
    with contextlib.closing(connection):
        if peer[0] not in allowed:
            return set()
        connection.settimeout(1)
        connection.sendall(f"{time.time():.6f}\n".encode())
        return {peer[0]} if connection.recv(16) == _DONE else set()


def fork_listener(sockets: Sequence[socket.socket], members: Iterable[str], seconds: float) -> None:
    """Answer in a separate process, which outlives this one and ends by itself."""
    if os.fork():
        return
    # From here on nothing may return into the module: it would print a second result.
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        answer(sockets, members, seconds)
    finally:
        os._exit(0)


def reach(address: str, peer: str, port: int, mtu: int, patience: float = 5.0) -> Link:
    """Return what the way from an address of this host to a peer's is like; ``mtu`` is that of the interface."""
    try:
        seconds, clock = _ask(address, peer, port, patience, b"")
    except (OSError, ValueError) as exc:
        return Link(_reason(exc))
    found = largest_packet(mtu, lambda size: _passes(address, peer, port, size))
    with contextlib.suppress(OSError, ValueError):
        _ask(address, peer, port, patience, _DONE)
    return Link("", round(seconds, 4), round(clock, 3), found)


def largest_packet(mtu: int, passes: Callable[[int], bool]) -> int:
    """Return the largest size, the interface's first, at which packets get through whole; 0 where none does."""
    return next((size for size in (mtu, *(each for each in COMMON_MTUS if each < mtu)) if passes(size)), 0)


def _ask(address: str, peer: str, port: int, patience: float, word: bytes) -> tuple[float, float]:
    """Return how long a connection took, and by how many seconds the peer's clock is ahead. Raises OSError."""
    began, clock = time.monotonic(), time.time()
    with contextlib.closing(
        socket.create_connection((peer, port), timeout=patience, source_address=(address, 0))
    ) as connection:
        taken = time.monotonic() - began
        connection.sendall(word or b"\n")
        text = ""
        # A host that does not know this one closes at once.
        with contextlib.suppress(ConnectionResetError):
            text = connection.recv(64).decode("ascii", "replace").strip()
        halfway = clock + (time.monotonic() - began) / 2
        if not _TIME.fullmatch(text):
            raise ValueError("something else listens there, or it does not know this host as a member")
        return taken, float(text) - halfway


def _passes(address: str, peer: str, port: int, size: int) -> bool:
    """Return whether a packet of a size, headers included, gets to the peer without being split."""
    family = _family(peer)
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
        level = socket.IPPROTO_IP if family == socket.AF_INET else socket.IPPROTO_IPV6
        probe.settimeout(_WAIT)
        data = bytes(size - _HEADERS[family])
        try:
            probe.setsockopt(level, _MTU_DISCOVER[family], _PROBE)
            probe.bind((address, 0))
            probe.connect((peer, port))
        except OSError:
            return False
        for _number in range(_TRIES):
            try:
                probe.send(data)
                if probe.recv(16) == str(len(data)).encode():
                    return True
            except socket.timeout:
                continue
            except OSError as exc:
                # Larger than the interface, or than a router on the way has told.
                if exc.errno == errno.EMSGSIZE:
                    return False
    return False


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET


def _reason(exc: BaseException) -> str:
    if isinstance(exc, socket.timeout):
        return "no answer"
    return str(getattr(exc, "strerror", "") or exc)


def as_dict(link: Link) -> dict[str, Any]:
    """Return a link as plain data."""
    return {"problem": link.problem, "seconds": link.seconds, "clock": link.clock, "mtu": link.mtu}
