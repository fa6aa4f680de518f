# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's admin socket."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from typing import Iterable

# Seconds for one answer.
ANSWER = 10.0


def ask(admin: str, command: str) -> str:
    """Return the answer of the worker that has the socket ``admin`` now. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER)
        connection.connect(admin)
        connection.sendall(f"{command}\n".encode("ascii"))
        return b"".join(iter(lambda: connection.recv(262144), b"")).decode("utf-8", "replace")


def unread(admin: str, files: Iterable[str]) -> list[str]:
    """Return those of the files that are newer than the worker, which reads them only once.

    HAProxy keeps its old worker where a new one cannot start, and says so in its journal only. Where it does not run,
    nothing is returned; a file that is missing is not newer.
    """
    try:
        found = re.search(r"(?m)^Start_time_sec: (\d+)$", ask(admin, "show info"))
    except OSError:
        return []
    # The worker tells whole seconds.
    return [path for path in files if found and _written(path) > int(found.group(1))]


def _written(path: str) -> int:
    """Return the second in which a file was written last, 0 where there is none."""
    with contextlib.suppress(FileNotFoundError):
        return int(os.stat(path).st_mtime)
    return 0
