# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's admin socket."""

from __future__ import annotations

import contextlib
import os
import re
from typing import ContextManager, Iterable

from ..common.files_host import locked
from ..common.unix_socket_host import ask_root


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
        found = re.search(r"(?m)^Start_time_sec: ([0-9]{1,18})$", ask_root(admin_socket, "show info"))
    except OSError:
        return []
    # The worker reports whole seconds.
    return [path for path in files if found and _modified_at(path) > int(found.group(1))]


def _modified_at(path: str) -> int:
    """Return the second of a file's last change, 0 for a missing file."""
    with contextlib.suppress(FileNotFoundError):
        return int(os.stat(path).st_mtime)
    return 0
