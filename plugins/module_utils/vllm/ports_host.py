# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes that listen on TCP ports of this host, as the kernel says it (sock_diag)."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from typing import Iterable, Iterator

from ..common.files_host import text_of
from ..common.kinds import show_value
from ..common.processes_host import words_of
from ..instance.sock_diag_host import Row, listening
from ..instance.socket_unit_host import BeyondError, paths_of


@dataclass(frozen=True)
class Listener:
    """A process that listens; ``unit`` is its systemd unit (``vllm@chat.service``) or None.

    ``uid`` is the user who made the socket, None where the kernel does not say who listens.
    """

    port: int
    pid: int | None
    command: str
    unit: str | None
    uid: int | None = None

    @property
    def who(self) -> str:
        """Return the process for a message."""
        if self.uid is None:
            return "a process that the kernel does not name (ss -ltnpe asks it too)"
        # A command line is anybody's text.
        process = f"process {self.pid} ({show_value(self.command)[1:-1]})" if self.pid else "a process out of sight"
        unit = f", unit {self.unit}" if self.unit else ""
        return f"{process} of the user {_user(self.uid)}{unit}"


def unit_of(cgroup: str) -> str | None:
    """Return the service or socket that the text of /proc/PID/cgroup names, None for a process outside of any.

    The outermost one: a user to whom a group is delegated, such as each who is logged in, names those inside of it.
    """
    found = re.search(r"/([^/\n]+\.(?:service|socket))(?=/|$)", cgroup, re.MULTILINE)
    return found.group(1) if found else None


def listeners(ports: Iterable[int]) -> list[Listener]:
    """Return who listens on any of the ports; a port of which the kernel does not say it counts as taken."""
    rows: list[tuple[int, Row]] = []
    unknown = []
    for port in sorted(ports):
        try:
            rows += [(port, row) for row in listening(port)]
        except OSError:
            unknown.append(Listener(port, None, "", None))
    pids = dict(_socket_holders({row.inode for _port, row in rows})) if rows else {}
    return [*(_listener(port, row, pids.get(row.inode)) for port, row in rows), *unknown]


def _listener(port: int, row: Row, pid: int | None) -> Listener:
    command = words_of(pid) if pid else ""
    unit = unit_of(text_of(f"/proc/{pid}/cgroup")) if pid else None
    # systemd itself keeps the sockets of some services; then the group in which it was made says whose it is.
    return Listener(port, pid, command, unit or _unit_of_group(row.group), row.uid)


def _unit_of_group(group: int) -> str | None:
    try:
        return next((unit_of(path) for path in paths_of({group})), None) if group else None
    except BeyondError:
        return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _socket_holders(inodes: set[int]) -> Iterator[tuple[int, int]]:
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            descriptors = os.listdir(f"/proc/{entry}/fd")
        except OSError:  # it has ended, or is not visible
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(f"/proc/{entry}/fd/{descriptor}")
            except OSError:  # closed meanwhile
                continue
            if target in wanted:
                yield wanted[target], int(entry)
