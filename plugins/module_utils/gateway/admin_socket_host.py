# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's admin socket."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from typing import ContextManager, Iterable

from ..common.files_host import locked

# Of one part of an answer, and of all of it: a process that has taken the place of HAProxy could send for ever.
ANSWER_SECONDS, TOTAL_SECONDS = 10.0, 60.0
MOST_BYTES = 64 << 20


def send_command(admin_socket: str, command: str) -> str:
    """Return the answer of the worker that serves ``admin_socket`` now. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(admin_socket)
        connection.sendall(f"{command}\n".encode("ascii"))
        answer, deadline = bytearray(), time.monotonic() + TOTAL_SECONDS
        for part in iter(lambda: connection.recv(262144), b""):
            answer += part
            if len(answer) > MOST_BYTES or time.monotonic() > deadline:
                raise OSError(errno.EMSGSIZE, f"answers without end to {command.partition(' ')[0]!r}", admin_socket)
        return answer.decode("utf-8", "replace")


def without_reload(admin_socket: str) -> ContextManager[object]:
    """Let no reload begin meanwhile, and wait for one that has begun: gateway-tool.py takes the same lock.

    A new worker reads files before it takes over the socket, so that it would not see a change in between.
    """
    # Without the directory HAProxy has not run since the host started. It belongs to HAProxy's user, who could hold a
    # lock in it, so the lock is beside it.
    directory = os.path.dirname(admin_socket)
    return locked(f"{directory}.lock") if os.path.isdir(directory) else contextlib.nullcontext()


def unread_files(admin_socket: str, files: Iterable[str]) -> list[str]:
    """Return the files that are newer than the worker, which reads them only once, when it starts.

    HAProxy keeps its old worker when a new one cannot start, and reports that in its journal only. Nothing is returned
    where HAProxy does not run; a missing file is not newer.
    """
    try:
        found = re.search(r"(?m)^Start_time_sec: ([0-9]{1,18})$", send_command(admin_socket, "show info"))
    except OSError:
        return []
    # The worker reports whole seconds.
    return [path for path in files if found and _modified_at(path) > int(found.group(1))]


def _modified_at(path: str) -> int:
    """Return the second of a file's last change, 0 for a missing file."""
    with contextlib.suppress(FileNotFoundError):
        return int(os.stat(path).st_mtime)
    return 0
