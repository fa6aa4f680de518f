# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot a machine is in, when one of its processes was started, and how a new one becomes another user."""

from __future__ import annotations

import ctypes
import os
import pwd
from typing import Callable, Sequence

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS = 38


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


def become(account: pwd.struct_passwd, groups: Sequence[int] | None = ()) -> Callable[[], None]:
    """Return what a new process calls to become a user, with these other groups; with None, all that the user has.

    It gains no rights by setuid programs, as vLLM's unit does not: a process of the same user, such as an engine that
    is taken over, could otherwise run one through it.
    """

    def change() -> None:
        if groups is None:
            os.initgroups(account.pw_name, account.pw_gid)
        else:
            os.setgroups(groups)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")

    return change
