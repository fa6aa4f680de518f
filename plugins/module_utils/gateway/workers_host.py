# SPDX-License-Identifier: GPL-3.0-or-later
"""Count the requests that still run in replaced workers of HAProxy, from /proc.

After a reload these workers no longer answer the admin socket, and the new worker does not count their requests. Each
request has its own connection to its server, so their open connections are their requests.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Counter, Dict, Tuple

from ..common.files_host import text_of

ESTABLISHED = "01"
Endpoints = Dict[Tuple[str, int], int]


def replaced_sessions(worker: int, proc: str = "/proc") -> Endpoints:
    """Return the number of connections of the workers before ``worker``, by address and port of the server.

    Empty when there are none, or when this process may not see them.
    """
    others = _siblings(worker, proc)
    if not others:
        return {}
    inodes = {inode for pid in others for inode in _sockets(pid, proc)}
    found: Counter[tuple[str, int]] = Counter()
    for table in ("tcp", "tcp6"):
        for inode, end in remote_endpoints(text_of(f"{proc}/{worker}/net/{table}")).items():
            if inode in inodes:
                found[end] += 1
    return dict(found)


def remote_endpoints(table: str) -> dict[str, tuple[str, int]]:
    """Return socket inode -> remote address and port of the connections in /proc/net/tcp or tcp6."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == ESTABLISHED:
            address, port = fields[2].split(":")
            found[fields[9]] = (_address(address), int(port, 16))
    return found


def _address(digits: str) -> str:
    """Return an address from the kernel's notation: words of 32 bits in the byte order of the machine."""
    words = [int(digits[start : start + 8], 16) for start in range(0, len(digits), 8)]
    packed = b"".join(socket.htonl(word).to_bytes(4, "big") if _LITTLE else word.to_bytes(4, "big") for word in words)
    return str(ipaddress.ip_address(packed))


_LITTLE = socket.htonl(1) != 1


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


def _sockets(pid: int, proc: str) -> list[str]:
    directory = f"{proc}/{pid}/fd"
    try:
        targets = [_target(f"{directory}/{descriptor}") for descriptor in os.listdir(directory)]
    except OSError:  # the process has ended
        return []
    return [target[8:-1] for target in targets if target.startswith("socket:[")]


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed in the meantime
        return ""
