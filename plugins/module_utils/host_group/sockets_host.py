# SPDX-License-Identifier: GPL-3.0-or-later
"""The TCP connections of an instance's processes, and whether another host answers."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections import Counter
from typing import Iterable, Iterator

from ..common.files_host import listed, text_of
from ..instance.sock_diag_host import connected_to

PROC = "/proc"
PROBE_TIMEOUT = 2.0


def count_connections(processes: Iterable[str], served: int) -> dict[str, int]:
    """Return the number of connections of processes with each address.

    Those at the port ``served`` are requests and say nothing about the group. Raises OSError where the kernel does not
    say all of them: a host must not seem lost because a user has many connections.
    """
    inodes = sockets_of(processes)
    return dict(Counter(row.remote[0] for row in connected_to() if row.inode in inodes and row.local[1] != served))


def processes_of(name: str, container: str) -> Iterator[str]:
    """Yield the processes of the unit and, with docker, of its container, which is in no unit."""
    # Outside of all units; whom a unit belongs to calls the groups in it as he likes.
    scope = rf"|:(?:(?!\.service)[^:\n])*[-/]{re.escape(container)}(?:\.scope)?(?:/|$)" if container else ""
    of_unit = re.compile(rf"/vllm@{re.escape(name)}\.service(?:/|$){scope}", re.MULTILINE)
    for entry in listed(PROC):
        if entry.isascii() and entry.isdigit() and of_unit.search(text_of(f"{PROC}/{entry}/cgroup")):
            yield entry


def sockets_of(processes: Iterable[str]) -> set[int]:
    """Return the inodes of the processes' sockets."""
    found = set()
    for process in processes:
        for descriptor in listed(f"{PROC}/{process}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"{PROC}/{process}/fd/{descriptor}")
                if target.startswith("socket:["):
                    found.add(int(target[8:-1]))
    return found


def answers(address: str, port: int) -> bool:
    """Return whether a host answers at a port, be it with a refusal."""
    try:
        socket.create_connection((address, port), PROBE_TIMEOUT).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
