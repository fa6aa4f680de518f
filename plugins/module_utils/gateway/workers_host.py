# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the requests that still run in replaced workers of HAProxy.

After a reload these workers no longer answer the admin socket, and the new worker does not count their requests. Each
request has its own connection to its server, so their open connections are their requests.
"""

from __future__ import annotations

import os
from typing import Counter, Dict, Iterable, Tuple

from ..common.files_host import target_of, text_of
from ..instance.sock_diag_host import connected_to

Endpoints = Dict[Tuple[str, int], int]


def replaced_sessions(worker: int, ports: Iterable[int], proc: str = "/proc") -> Endpoints:
    """Return the number of connections of the workers before ``worker``, by address and port of the server.

    ``ports`` are those of all servers. Empty when there are no such workers, or when this process may not see them.
    Raises OSError where the kernel does not say all connections.
    """
    others = _siblings(worker, proc)
    inodes = {inode for pid in others for inode in _sockets(pid, proc)}
    rows = (row for port in sorted(set(ports)) for row in connected_to(port)) if inodes else ()
    return dict(Counter(row.remote for row in rows if row.inode in inodes))


def _siblings(worker: int, proc: str) -> list[int]:
    """Return the other processes of the worker's program with the same parent."""
    parent, command = _parent(worker, proc)
    if parent <= 1:
        return []
    pids = [int(entry) for entry in os.listdir(proc) if entry.isdigit()]
    return [pid for pid in pids if pid != worker and _parent(pid, proc) == (parent, command)]


def _parent(pid: int, proc: str) -> tuple[int, str]:
    """Return the parent of a process and its command; 0 when the process has ended."""
    # The command is in brackets and may contain spaces and brackets itself.
    head, _bracket, rest = text_of(f"{proc}/{pid}/stat").rpartition(")")
    return (int(rest.split()[1]), head.partition("(")[2]) if rest else (0, "")


def _sockets(pid: int, proc: str) -> list[int]:
    directory = f"{proc}/{pid}/fd"
    try:
        targets = [target_of(f"{directory}/{descriptor}") for descriptor in os.listdir(directory)]
    except OSError:  # the process has ended
        return []
    return [int(target[8:-1]) for target in targets if target.startswith("socket:[")]
