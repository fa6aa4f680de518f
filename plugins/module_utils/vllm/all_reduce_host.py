# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the all-reduce of a group on this host, with the Python of the instance and with a deadline. Leaves nothing."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.foreign_trees_host import remove_tree
from ..common.processes_host import become
from .all_reduce import parse_all_reduce

# Seconds to load torch from a cold disk, and to end.
GRACE = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Command:
    """The words that run Python, the variables, and the user that it runs as; ``stop`` ends what outlives it."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    user: str = ""
    stop: Sequence[str] = ()


def run_all_reduce(command: Command, program: str, options: str, seconds: float) -> dict[str, Any]:
    """Run a program, given on its standard input; return what parse_all_reduce does.

    Raises OSError if the command cannot be started, KeyError if there is no such user.
    """
    account = pwd.getpwnam(command.user) if command.user and os.geteuid() == 0 else None
    home = tempfile.mkdtemp(prefix="vllm-all-reduce-")
    try:
        if account:
            os.chown(home, account.pw_uid, account.pw_gid)
        process = subprocess.Popen(
            [*command.argv, options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=home,
            env={"PATH": _PATH, "LC_ALL": "C.UTF-8", **command.environment, "HOME": home, "TMPDIR": home},
            start_new_session=True,
            preexec_fn=become(account, None) if account else None,
        )
        out, err, timed_out = _wait(process, program, seconds + GRACE)
        if timed_out and command.stop:
            subprocess.run(list(command.stop), capture_output=True, check=False)
        return parse_all_reduce(out, err, process.returncode or 0, timed_out, seconds + GRACE)
    finally:
        remove_tree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[str], program: str, seconds: float) -> tuple[str, str, bool]:
    try:
        out, err = process.communicate(program, timeout=seconds)
        return out, err, False
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # A process that hangs in a driver does not even die; its output is not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=5)
            return out, err, True
        return "", "", True
