# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the burn-in program with a deadline, and read the counters while it runs. Leaves nothing on the host."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

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
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=home,
            env={**_environment(home), **(visible or {})},
            start_new_session=True,
        )
        try:
            out, err, timed_out = _wait(process, program, limits, sample)
        finally:
            if process.poll() is None:
                _kill(process)
                stop()
        if timed_out:
            out, err = _rest(process)
        return parse_burn_in(out, err, process.returncode or 0, timed_out, limits.deadline)


def _environment(home: str) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return {**kept, **ENVIRONMENT, "HOME": home, "TMPDIR": home, "XDG_CACHE_HOME": home}


def _wait(
    process: subprocess.Popen[str], program: str, limits: Limits, sample: Callable[[], None]
) -> tuple[str, str, bool]:
    end = time.monotonic() + limits.deadline
    text: str | None = program
    while True:
        left = end - time.monotonic()
        if left <= 0:
            return "", "", True
        try:
            out, err = process.communicate(text, timeout=min(limits.pause, left))
            return out, err, False
        except subprocess.TimeoutExpired:
            # communicate() sends it once and remembers it.
            text = None
            sample()


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a killed process printed; nothing if it hangs in a driver and does not die."""
    try:
        return process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        return "", ""
