# SPDX-License-Identifier: GPL-3.0-or-later
"""Check who listens at a port of this host: any user can bind one that is free, so a port alone proves nothing.

Instances have one user, so of its processes only those of the instance's own units count (socket_unit_host.py). Of
root's, only those of another instance or container do not: there it is the root of an image, as Ascend's engines are.

Instances use the network of the host, in containers too. An end of a connection that is not in its tables is on
another host, or where root redirects the port to, and no user of this host can be there. Where the kernel does not say
all of them, nothing is sent.
"""

from __future__ import annotations

import os
import socket

from .config_file import Processes
from .marks import CACHE_DIR
from .sock_diag_host import Row, plain, sockets
from .socket_unit_host import stranger_at


class StrangerError(OSError):
    """A process that is not the instance's listens at the port; the message is the whole sentence."""


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
    here, peer = plain(*opened.getsockname()[:2]), plain(*opened.getpeername()[:2])
    table = _sockets(peer, here)
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
    for of_root in (False, True):
        # An accepted connection has the group of its listener, which may be closed by now.
        groups = {row.group for row in ends if row.group and (row.uid == 0) is of_root}
        group = stranger_at(groups, expected.instance, of_root) if groups and expected.instance else ""
        if group:
            raise StrangerError(
                f"{peer[0]} port {peer[1]}: a process of {group!a} listens there, expected the instance "
                f"{expected.instance}; nothing is sent to it: find it with ss -ltnpe 'sport = :{peer[1]}', end it, and "
                "start the instance again"
            )


def _sockets(peer: tuple[str, int], here: tuple[str, int]) -> list[Row]:
    try:
        return sockets(peer[1], here[1])
    except OSError as exc:
        raise StrangerError(
            f"{peer[0]} port {peer[1]}: the kernel does not say who listens there ({exc.strerror or exc}), expected an "
            "answer of sock_diag; nothing is sent to it: load the kernel's module tcp_diag, and find out with ss -s "
            "whether somebody has too many connections"
        ) from exc
