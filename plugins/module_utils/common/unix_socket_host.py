# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a program of root at a Unix socket whose directory another user may write: the one client of HAProxy's sockets.

On Debian /run/haproxy belongs to haproxy, who could put a socket in the place of HAProxy's. The kernel says
who listens.
"""

import errno
import os
import socket
import struct
import time
from typing import Iterator

# Seconds between two parts of an answer, and of all of it.
PART_SECONDS, TOTAL_SECONDS = 10.0, 60.0
MOST_BYTES = 64 << 20


def ask_root(path: str, command: str, part_seconds: float = PART_SECONDS, seconds: float = TOTAL_SECONDS) -> str:
    """Return the answer to a command, of a process that listens as root or as this user.

    Another one gets no command. Raises OSError, for an answer without end too.
    """
    answer = bytearray()
    for part in ask_root_in_parts(path, command, part_seconds, seconds):
        answer += part
        if len(answer) > MOST_BYTES:
            raise _endless(path, command)
    return answer.decode("utf-8", "replace")


def ask_root_in_parts(
    path: str, command: str, part_seconds: float = PART_SECONDS, seconds: float = TOTAL_SECONDS
) -> Iterator[bytes]:
    """As ``ask_root``, for an answer that may be larger than the memory for it; nothing but time limits it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(part_seconds)
        connection.connect(path)
        _pid, uid, _gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (0, os.geteuid()):
            problem = f"a process of the user with uid {uid} listens there, expected one of root; find it and end it"
            raise PermissionError(errno.EPERM, problem, path)
        connection.sendall(f"{command}\n".encode("ascii"))
        deadline = time.monotonic() + seconds
        for part in iter(lambda: connection.recv(262144), b""):
            yield part
            if time.monotonic() > deadline:
                raise _endless(path, command)


def _endless(path: str, command: str) -> OSError:
    return OSError(errno.EMSGSIZE, f"answers without end to {command.partition(' ')[0]!r}", path)
