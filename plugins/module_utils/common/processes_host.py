# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot a machine is in, when a process was started, how one becomes another user and ends."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import time
from functools import partial
from itertools import islice
from typing import Callable, Iterator, Sequence

from .deadline import finish_within
from .files_host import bytes_of, listed, target_of

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
# Seconds in which all processes of a program have to end; one that hangs in a driver does not.
_ENDING = 10.0
# Any user makes the command line and the list of mapped files of a process as long as he likes, at no cost of memory.
# The kernel reads no file for them (FOLL_ANON), but userfaultfd, where users may have it, can let a reader wait. It
# starts no program with more than 6 MiB of arguments; a large engine maps files in 10 MiB of lines. Seconds for one
# process, and for all.
MOST_WORDS, MOST_MAPS, MOST_PATHS = 8 << 20, 64 << 20, 1 << 16
_SECONDS_OF_ONE, _SECONDS_OF_ALL = 5.0, 60.0


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


def texts_of_processes(proc: str = "/proc") -> Iterator[tuple[int, list[bytes] | None]]:
    """Yield the number of each process and what it names: its command line, its mapped files, its directory, its
    program and its open files. None instead of the texts if they are too long or not read in time: it may use anything.
    """
    deadline = time.monotonic() + _SECONDS_OF_ALL
    for name in filter(str.isdigit, listed(proc)):
        left = min(deadline - time.monotonic(), _SECONDS_OF_ONE)
        texts: list[bytes] | None = None
        with contextlib.suppress(TimeoutError):
            texts = finish_within(left, partial(_texts_of, f"{proc}/{name}")) if left > 0 else None
        yield int(name), texts


def _texts_of(directory: str) -> list[bytes] | None:
    words, maps = bytes_of(f"{directory}/cmdline", MOST_WORDS + 1), bytes_of(f"{directory}/maps", MOST_MAPS + 1)
    links = ["cwd", "exe", *(f"fd/{name}" for name in listed(f"{directory}/fd"))]
    targets = (os.fsencode(target_of(f"{directory}/{link}")) for link in links)
    # A server has a descriptor for each connection, which names nothing.
    paths = list(islice((target for target in targets if target.startswith(b"/")), MOST_PATHS + 1))
    if len(words) > MOST_WORDS or len(maps) > MOST_MAPS or len(paths) > MOST_PATHS:
        return None
    return [words, maps, *paths]


def words_of(pid: int | str, seconds: float = _SECONDS_OF_ONE) -> str:
    """Return the beginning of a process's command line for a message, empty where it is not read in time."""
    with contextlib.suppress(TimeoutError):
        words = finish_within(seconds, partial(bytes_of, f"/proc/{pid}/cmdline", 4096))
        return words.replace(b"\0", b" ").decode("utf-8", "replace").strip()
    return ""


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


@contextlib.contextmanager
def ending_descendants() -> Iterator[None]:
    """Kill what is left of all processes that were started within, also where they have left their session.

    Meanwhile this process is the parent of those whose own parent has ended. It may have no other children.
    """
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        deadline = time.monotonic() + _ENDING
        while _kill_children() and time.monotonic() < deadline:
            time.sleep(0.01)
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _kill_children() -> bool:
    """Kill all children of this process; return whether there are some. Their children become its own."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        if _parent_of(name) == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
