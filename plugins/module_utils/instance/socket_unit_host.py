# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the unit of the process that made a listening socket, by the control group that the kernel keeps with it.

Instances of a host have one user, so the owner of a socket does not tell them apart. The kernel tells everybody the
control group (sock_diag, from Linux 5.9), a process cannot choose its own, and systemd has one for each unit.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from typing import Iterator

from ..common.files_host import text_of

# Where the second version of control groups is mounted; systemd's hybrid layout has it below the first one.
ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
SELF, _MARK = "/proc/self/cgroup", "cgroup.controllers"
# Slices, units and scopes, and the groups that a container engine makes below one.
_DEPTH, _MOST = 7, 20_000
_DIAG_BY_FAMILY, _DUMP, _DONE, _ERROR, _LISTEN, _CGROUP_ID = 20, 0x301, 3, 2, 1 << 10, 21
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
# Of a socket: family, state, timer and retransmissions; its addresses; times, queues, owner and inode.
_SOCKET = struct.Struct("=4B48s5I")
_SECONDS, _MOST_BYTES = 5.0, 8 << 20
_ENGINE = re.compile(r"(docker|libpod|cri-containerd|crio)-[0-9a-f]{64}\.scope|[0-9a-f]{64}")


def stranger_at(port: int, inodes: set[int], instance: str) -> str:
    """Return the control group of a socket that is not the instance's, empty where there is none or it is unknown.

    A container of docker has a separate group, whose name does not say which instance it is: it counts as the
    instance's, as does the group of this process. ``inodes`` are those of the sockets that count.
    """
    units = {f"vllm@{instance}.service", f"vllm-router@{instance}.service"}
    found = {group for inode, group in listening_groups(port) if inode in inodes}
    for path in paths_of(found):
        parts = path.split("/")
        if path == own_group() or units & set(parts):
            continue
        if any(part.endswith(".service") for part in parts) or not any(map(_ENGINE.fullmatch, parts)):
            return path
    return ""


def own_group() -> str:
    """Return the path of this process's control group, empty where there is none of the second version."""
    found = re.search(r"(?m)^0::(.*)$", text_of(SELF))
    return found.group(1) if found else ""


def listening_groups(port: int) -> Iterator[tuple[int, int]]:
    """Yield inode and control group of each listening socket at a port; none where the kernel does not say."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            yield from _parsed(_asked(family, port))
        except (OSError, struct.error):
            # No netlink in this unit, or an old kernel: the owner alone decides then.
            continue


def _asked(family: int, port: int) -> bytes:
    """Return the kernel's messages about the sockets that listen at a port. Raises OSError."""
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _LISTEN)
    request += struct.pack(">HH", port, 0) + b"\0" * 36 + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 4) as asked:
        asked.settimeout(_SECONDS)
        asked.send(_HEADER.pack(_HEADER.size + len(request), _DIAG_BY_FAMILY, _DUMP, 1, 0) + request)
        answer = b""
        while len(answer) < _MOST_BYTES:
            part = asked.recv(1 << 16)
            answer += part
            if not part or _HEADER.unpack_from(part)[1] in (_DONE, _ERROR):
                break
        return answer


def _parsed(answer: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + _HEADER.size <= len(answer):
        length, kind = _HEADER.unpack_from(answer, at)[:2]
        if kind != _DIAG_BY_FAMILY or length < _HEADER.size:
            return
        inode = _SOCKET.unpack_from(answer, at + _HEADER.size)[-1]
        place, end = at + _HEADER.size + _SOCKET.size, at + length
        while place + _ATTRIBUTE.size <= end:
            size, name = _ATTRIBUTE.unpack_from(answer, place)
            if name == _CGROUP_ID:
                yield inode, struct.unpack_from("=Q", answer, place + _ATTRIBUTE.size)[0]
            place += max(_ATTRIBUTE.size, (size + 3) & ~3)
        at += (length + 3) & ~3


def paths_of(groups: set[int]) -> Iterator[str]:
    """Yield the paths of control groups below the root; a group that is gone or out of sight is left out."""
    root = next((path for path in ROOTS if os.path.exists(f"{path}/{_MARK}")), "")
    waiting, seen = [(root, 0)] if root and groups else [], 0
    while waiting and seen < _MOST:
        path, depth = waiting.pop()
        seen += 1
        try:
            if os.stat(path).st_ino in groups:
                yield path[len(root) :] or "/"
            if depth < _DEPTH:
                waiting += [
                    (entry.path, depth + 1) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            continue
