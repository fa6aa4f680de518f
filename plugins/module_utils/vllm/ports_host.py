# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes that listen on TCP ports of this host, read from /proc."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Iterator

from ..common.files_host import text_of

LISTEN = "0A"


@dataclass(frozen=True)
class Listener:
    """A process that listens; ``unit`` is its systemd unit (``vllm@chat.service``) or None."""

    port: int
    pid: int | None
    command: str
    unit: str | None


def listening_inodes(table: str) -> dict[str, int]:
    """Return socket inode -> port of the listening sockets in the text of /proc/net/tcp or tcp6."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == LISTEN:
            found[fields[9]] = int(fields[1].rsplit(":", 1)[1], 16)
    return found


def unit_of(cgroup: str) -> str | None:
    """Return the service that the text of /proc/PID/cgroup names, None for a process outside of any.

    The outermost one: a user to whom a group is delegated, such as each who is logged in, names those inside of it.
    """
    found = re.search(r"/([^/\n]+\.service)(?=/|$)", cgroup, re.MULTILINE)
    return found.group(1) if found else None


def listeners(ports: set[int], proc: str = "/proc") -> list[Listener]:
    """Return the processes that listen on any of the ports; one that is not visible has no pid."""
    inodes: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        inodes.update(listening_inodes(text_of(f"{proc}/net/{table}")))
    wanted = {inode: port for inode, port in inodes.items() if port in ports}
    if not wanted:
        return []
    found = {}
    for pid, inode in _socket_holders(proc):
        if inode in wanted:
            found[inode] = Listener(
                wanted[inode],
                pid,
                text_of(f"{proc}/{pid}/cmdline").replace("\0", " ").strip(),
                unit_of(text_of(f"{proc}/{pid}/cgroup")),
            )
    return [found.get(inode) or Listener(port, None, "", None) for inode, port in sorted(wanted.items())]


def _socket_holders(proc: str) -> Iterator[tuple[int, str]]:
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        try:
            descriptors = os.listdir(f"{proc}/{entry}/fd")
        except OSError:  # it has ended, or is not visible
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(f"{proc}/{entry}/fd/{descriptor}")
            except OSError:  # closed meanwhile
                continue
            if target.startswith("socket:["):
                yield int(entry), target[8:-1]
