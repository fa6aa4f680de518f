# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot a machine is in, and when one of its processes was started."""

from __future__ import annotations

import os


def boot_id(proc_root: str = "/proc") -> str:
    """Return the kernel's id of this boot, empty if it is not known."""
    try:
        with open(os.path.join(proc_root, "sys", "kernel", "random", "boot_id"), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def started_at(pid: int, proc_root: str = "/proc") -> int | None:
    """Return the start of a process in ticks since the boot, None if there is no such process.

    Process numbers are reused; number and start time together identify one process.
    """
    try:
        with open(os.path.join(proc_root, str(pid), "stat"), encoding="ascii", errors="replace") as file:
            # The command's name may hold anything; it ends with the last parenthesis.
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
