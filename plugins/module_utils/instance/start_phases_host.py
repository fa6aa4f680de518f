# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the last start of each instance of this host from the journal."""

from __future__ import annotations

import subprocess
from typing import Any

from .journal_host import read_journal
from .marks import unit_of
from .start_phases import read_start
from .systemd import parse_units

# vLLM's first lines are the start. Later ones, of requests, have no end.
MAX_BYTES = 4 * 1024 * 1024
_TIMEOUT = 30.0
_SHOW = ["systemctl", "show", "--property=Id,InvocationID", "--", unit_of("*")]


def read_starts() -> dict[str, dict[str, Any]]:
    """Return the last start of each instance by its name. Raises OSError where systemd or the journal do not answer."""
    try:
        shown = subprocess.run(_SHOW, capture_output=True, text=True, check=True, timeout=_TIMEOUT).stdout
    except subprocess.SubprocessError as exc:
        raise OSError(f"systemd does not answer: {exc}") from exc
    before, after = unit_of("*").split("*")
    runs = {unit[len(before) : -len(after)]: found["InvocationID"] for unit, found in parse_units(shown).items()}
    return {name: read_start(_journal(run)) for name, run in sorted(runs.items()) if run}


def _journal(run: str) -> list[str]:
    """Return the first lines of a run of a unit, and those of systemd about it.

    Any user can log a field such as INVOCATION_ID; those that begin with _ are journald's own word.
    """
    of_systemd = [f"INVOCATION_ID={run}", "_PID=1", "_UID=0"]
    return read_journal(["--output=short-monotonic", f"_SYSTEMD_INVOCATION_ID={run}", "+", *of_systemd], MAX_BYTES)
