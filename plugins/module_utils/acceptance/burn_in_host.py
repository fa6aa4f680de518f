# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the burn-in program with a deadline, and read the counters while it runs. Leaves nothing on the host."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

from ..common.running_program_host import RunningProgram
from .readings import BurnIn, parse_burn_in

# What libraries would otherwise write to caches.
ENVIRONMENT = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "CUDA_CACHE_DISABLE": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "MIOPEN_DISABLE_CACHE": "1",
}
# Of the environment of Ansible's module, only these variables are about chips.
_DROPPED = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
_PATIENCE = 10


@dataclass(frozen=True)
class Limits:
    """Seconds: until the program must have ended, and between two readings of the counters."""

    deadline: float
    pause: float


def run_burn_in(
    argv: Sequence[str],
    program: str,
    limits: Limits,
    sample: Callable[[], None],
    stop: Callable[[], None],
    visible: Mapping[str, str] | None = None,
) -> BurnIn:
    """Run a program, given on its standard input, and return what it measured.

    ``sample`` is called every ``limits.pause`` seconds while it runs, ``stop`` if it must be killed. ``visible`` are
    variables that restrict it to chips. Raises OSError if the command cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="baremetal-accept-") as home:
        running = RunningProgram(argv, program, home, {**_environment(home), **(visible or {})})
        try:
            timed_out = not _wait(running, limits, sample)
        finally:
            if running.process.poll() is None:
                running.kill()
                stop()
        out, err = running.texts(_PATIENCE)
        return parse_burn_in(out, err, running.process.returncode or 0, timed_out, limits.deadline)


def _environment(home: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, **ENVIRONMENT, "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": home}


def _wait(running: RunningProgram, limits: Limits, sample: Callable[[], None]) -> bool:
    """Return whether the program ends before its deadline."""
    end = time.monotonic() + limits.deadline
    while (left := end - time.monotonic()) > 0:
        if running.ends_within(min(limits.pause, left)):
            return True
        sample()
    return False
