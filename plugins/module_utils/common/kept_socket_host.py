# SPDX-License-Identifier: GPL-3.0-or-later
"""A listening socket that systemd keeps while its service restarts, so that nobody else takes the port meanwhile.

Any user of a host can bind a port that is free. systemd holds a copy of the socket (FileDescriptorStoreMax and
NotifyAccess in the unit) and passes it to the next process of the service, after a crash too; a stop of the unit
releases it.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket

_NAME = "port"
_FIRST = 3


def listen(address: str, port: int, backlog: int = 128) -> socket.socket:
    """Return a TCP socket that listens at a port: the kept one, else a new one that systemd keeps. Raises OSError."""
    for kept in _kept():
        if kept.getsockname()[:2] == (address, port):
            return kept
        kept.close()
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((address, port))
    opened.listen(backlog)
    # One of another port goes first.
    _notify(f"FDSTOREREMOVE=1\nFDNAME={_NAME}")
    _notify(f"FDSTORE=1\nFDNAME={_NAME}", opened)
    return opened


def _kept() -> list[socket.socket]:
    """Return the sockets that systemd has passed to this process."""
    count = os.environ.get("LISTEN_FDS", "")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return []
    return [socket.socket(fileno=number) for number in range(_FIRST, _FIRST + min(int(count), 8))]


def _notify(text: str, opened: socket.socket | None = None) -> None:
    """Tell systemd something, with a socket; nothing where it does not listen."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place:
        return
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [opened.fileno()]))] if opened else []
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.connect(f"\0{place[1:]}" if place.startswith("@") else place)
        told.sendmsg([text.encode()], rights)
