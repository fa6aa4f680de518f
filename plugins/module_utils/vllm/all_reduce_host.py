# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the all-reduce of a group on this host, with the Python of the instance and with a deadline. Leaves nothing."""

from __future__ import annotations

import os
import pwd
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ..common.foreign_trees_host import remove_tree
from ..common.processes_host import become
from ..common.running_program_host import RunningProgram
from .all_reduce import parse_all_reduce

# Seconds to load torch from a cold disk, and to end.
GRACE = 60.0
# Seconds for the last output: a process that hangs in a driver does not even die.
_PATIENCE = 5.0
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
        running = RunningProgram(
            [*command.argv, options],
            program,
            home,
            {"PATH": _PATH, "LC_ALL": "C.UTF-8", **command.environment, "HOME": home, "TMPDIR": home},
            become(account, None) if account else None,
        )
        timed_out = not running.ends_within(seconds + GRACE)
        if timed_out:
            running.kill()
            if command.stop:
                RunningProgram(command.stop, "").ends_within(GRACE)
        out, err = running.texts(_PATIENCE)
        return parse_all_reduce(out, err, running.process.returncode or 0, timed_out, seconds + GRACE)
    finally:
        remove_tree(home, ignore_errors=True)
