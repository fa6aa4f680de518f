# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that the burn-in program prints: its measurements, its progress, and why it ended."""

from dataclasses import dataclass
from typing import Any, Mapping

from ..common.foreign_json import load_json

# Exit statuses of the program, and of a process that the kernel killed for memory.
OK, NO_TORCH, NO_CHIP, HUNG, OUT_OF_MEMORY = 0, 3, 4, 5, 6
KILLED = (-9, 137)
BEGINS, RESULT, FAILED = "begins", "result", "failed"
PHASES = {"products": "matrix products", "copy": "copies in memory", "peer": "copies between chips"}


@dataclass(frozen=True)
class BurnIn:
    """The measurements of a burn-in, by phase; ``problem`` is empty if it finished."""

    measured: Mapping[str, Any]
    problem: str = ""


def parse_burn_in(out: str, err: str, rc: int, timed_out: bool, seconds: float) -> BurnIn:
    """Return the measurements in the program's output and the reason for its end.

    ``rc`` is its exit status, negative for a signal. ``timed_out``: it was killed after ``seconds``.
    """
    measured: dict[str, Any] = {}
    phase, failure = "", ""
    for line in out.splitlines():
        entry = _entry(line)
        if entry.get("event") == BEGINS:
            phase = str(entry.get("phase", ""))
        elif entry.get("event") == RESULT:
            measured[str(entry["phase"])] = entry["value"]
            phase = ""
        elif entry.get("event") == FAILED:
            failure = str(entry.get("what", ""))
    return BurnIn(measured, _problem(phase, failure, err, rc, timed_out, seconds))


def _entry(line: str) -> Mapping[str, Any]:
    """Return one line of the program; nothing for any other line, which libraries may print too."""
    try:
        entry = load_json(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _problem(phase: str, failure: str, err: str, rc: int, timed_out: bool, seconds: float) -> str:
    during = f" during {PHASES.get(phase, phase)}" if phase else ""
    if timed_out or rc == HUNG:
        return f"the burn-in did not end within {seconds:.0f} s and was killed{during}"
    if rc in KILLED:
        return f"the burn-in was killed{during} (signal 9): look for the kernel's out-of-memory killer in 'dmesg'"
    if failure:
        return f"the burn-in failed{during}: {failure}"
    if rc != OK:
        last = (err.strip() or "no output").splitlines()[-1]
        return f"the burn-in ended with status {rc}{during}: {last[:300]}"
    return ""
