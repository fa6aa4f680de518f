# SPDX-License-Identifier: GPL-3.0-or-later
"""Check who listens at a port of this host: any user can bind one that is free, so a port alone proves nothing.

Instances use the network of the host, in containers too. An end of a connection that is not in its tables is on
another host, or where root redirects the port to, and no user of this host can be there.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from typing import Collection, Iterator, NamedTuple

from ..common.files_host import text_of
from .marks import CACHE_DIR

# Of this process: a unit with ProcSubset=pid sees no /proc/net.
NET = "/proc/self/net"
LISTEN = "0A"


class StrangerError(OSError):
    """Another user's process listens at the port; the message is the whole sentence."""


class Row(NamedTuple):
    """A socket of the host: addresses as ``ADDRESS PORT``, the owner and whether it listens."""

    local: tuple[str, int]
    remote: tuple[str, int]
    uid: int
    listens: bool


def users_of(name: str) -> tuple[int, ...]:
    """Return the user of an instance's processes, which owns its cache; none while there is no cache."""
    try:
        return (os.stat(f"{CACHE_DIR}/{name}").st_uid,)
    except OSError:
        return ()


def check_peer(opened: socket.socket, users: Collection[int]) -> None:
    """Raise StrangerError if the other end of a connection belongs to none of root, this user and ``users``.

    The listener counts as well as the end: nobody has accepted a connection yet that has just been made.
    """
    here, peer = _plain(*opened.getsockname()[:2]), _plain(*opened.getpeername()[:2])
    table = list(rows(peer[1]))
    ends = [row for row in table if row.local == peer and row.remote == here]
    if not ends:
        return
    wanted = {0, os.geteuid(), *users}
    # The address itself comes before all addresses of its kind, and those before all of IPv6.
    for address in (peer[0], "0.0.0.0" if ":" not in peer[0] else "::", "::"):  # noqa: S104 (nothing is bound)
        listeners = [row for row in table if row.listens and row.local[0] == address]
        if listeners:
            ends += listeners
            break
    for row in ends:
        if row.uid not in wanted:
            raise StrangerError(
                f"{peer[0]} port {peer[1]}: a process of the user with uid {row.uid} listens there, expected the "
                f"instance; nothing is sent to it: find it with ss -ltnp 'sport = :{peer[1]}', end it, and start the "
                "instance again"
            )


def rows(port: int) -> Iterator[Row]:
    """Yield the sockets of this host at a local port."""
    mark = f":{port:04X} "
    for name in ("tcp", "tcp6"):
        for line in text_of(f"{NET}/{name}").splitlines()[1:]:
            if mark in line:
                fields = line.split()
                local, remote = _address(fields[1]), _address(fields[2])
                if local[1] == port:
                    yield Row(local, remote, int(fields[7]), fields[3] == LISTEN)


def _address(text: str) -> tuple[str, int]:
    """Return address and port as the kernel's table writes them: words of 32 bits in the order of this machine."""
    digits, _colon, port = text.partition(":")
    words = (int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8))
    return _plain(str(ipaddress.ip_address(b"".join(words))), int(port, 16))


def _plain(address: str, port: int) -> tuple[str, int]:
    """Return an address in one form, without the zone; one of IPv4 that is written as IPv6 as the former."""
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found), port
