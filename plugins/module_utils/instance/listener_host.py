# SPDX-License-Identifier: GPL-3.0-or-later
"""Check who listens at a port of this host: any user can bind one that is free, so a port alone proves nothing.

Instances have one user, so of its processes only those of the instance's own units count (socket_unit_host.py).

Instances use the network of the host, in containers too. An end of a connection that is not in its tables is on
another host, or where root redirects the port to, and no user of this host can be there.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from typing import Iterator, NamedTuple

from ..common.files_host import text_of
from .config_file import Processes
from .marks import CACHE_DIR
from .socket_unit_host import stranger_at

# Of this process: a unit with ProcSubset=pid sees no /proc/net.
NET = "/proc/self/net"
LISTEN = "0A"


class StrangerError(OSError):
    """A process that is not the instance's listens at the port; the message is the whole sentence."""


class Row(NamedTuple):
    """A socket of the host: addresses as ``ADDRESS PORT``, the owner, whether it listens, and its inode."""

    local: tuple[str, int]
    remote: tuple[str, int]
    uid: int
    listens: bool
    inode: int = 0


def processes_of(name: str) -> Processes:
    """Return whose processes an instance has: those of the user that owns its cache; none while there is no cache."""
    try:
        return Processes((os.stat(f"{CACHE_DIR}/{name}").st_uid,), name)
    except OSError:
        return Processes(instance=name)


def check_peer(opened: socket.socket, expected: Processes) -> None:
    """Raise StrangerError if the other end of a connection belongs to none of root, this user and those expected.

    The listener counts as well as the end: nobody has accepted a connection yet that has just been made.
    """
    here, peer = _plain(*opened.getsockname()[:2]), _plain(*opened.getpeername()[:2])
    table = list(rows(peer[1]))
    ends = [row for row in table if row.local == peer and row.remote == here]
    if not ends:
        return
    wanted = {0, os.geteuid(), *expected.users}
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
    # A process of root can be what it wants.
    own = {row.inode for row in ends if row.listens and row.uid}
    group = stranger_at(peer[1], own, expected.instance) if own and expected.instance else ""
    if group:
        raise StrangerError(
            f"{peer[0]} port {peer[1]}: a process of {group!a} listens there, expected the instance "
            f"{expected.instance}; nothing is sent to it: find it with ss -ltnpe 'sport = :{peer[1]}', end it, and "
            "start the instance again"
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
                    yield Row(local, remote, int(fields[7]), fields[3] == LISTEN, int(fields[9]))


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
