# SPDX-License-Identifier: GPL-3.0-or-later
"""A listening socket that systemd passes to a service, so that nobody else takes its port.

Any user of a host can bind a port that is free. The socket unit of a service listens from early in the boot on, before
users and their services start, and while the service is down.
"""

from __future__ import annotations

import os
import socket

_FIRST = 3


def listen(address: str, port: int, backlog: int = 128) -> socket.socket:
    """Return a TCP socket that listens at a port: the one that systemd has passed, else a new one. Raises OSError."""
    for passed in _passed():
        if passed.getsockname()[:2] == (address, port):
            return passed
        passed.close()
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((address, port))
    opened.listen(backlog)
    return opened


def _passed() -> list[socket.socket]:
    """Return the sockets that systemd has passed to this process."""
    count = os.environ.get("LISTEN_FDS", "")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or not count.isdecimal():
        return []
    return [socket.socket(fileno=number) for number in range(_FIRST, _FIRST + min(int(count), 8))]
