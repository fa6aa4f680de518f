# SPDX-License-Identifier: GPL-3.0-or-later
"""What all_reduce_program_host.py prints on one host of a group."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_finite

# The program names these phases, in this order.
PHASES = ("load", "join", "connect", "measure")
MOST = 400
# In NCCL's log: how it gets to another host.
_NETWORK = re.compile(r"via NET/([A-Za-z0-9_]+)(?:/\d+)?(?:\(\d+\))?(/GDRDMA)?")


def parse_all_reduce(out: str, err: str, rc: int, timed_out: bool, seconds: float) -> dict[str, Any]:
    """Return ``problem`` (empty if it finished), ``phase``, ``missing``, ``gb_per_s``, ``versions``, ``networks``.

    ``rc`` is the exit status of the program, negative for a signal. ``timed_out``: it was killed after ``seconds``.
    """
    found: dict[str, Any] = {
        "problem": "",
        "phase": "load",
        "missing": [],
        "gb_per_s": None,
        "chips": 0,
        "versions": {},
    }
    failure = ""
    for line in out.splitlines():
        entry = _entry(line)
        event = entry.get("event")
        if event == "phase" and entry.get("phase") in PHASES:
            found["phase"] = entry["phase"]
        elif event == "versions":
            found["versions"] = _texts(entry.get("versions"))
        elif event == "result":
            found["gb_per_s"], found["chips"] = _rate(entry.get("gb_per_s")), _count(entry.get("chips"))
        elif event == "failed" and not failure:
            failure = str(entry.get("what") or "it failed")[:MOST]
            missing = entry.get("missing")
            found["missing"] = [str(host)[:MOST] for host in missing] if isinstance(missing, list) else []
    found["networks"] = sorted({f"{name}{direct or ''}" for name, direct in _NETWORK.findall(out)})
    found["problem"] = _problem(failure, found["gb_per_s"], err, rc, timed_out, seconds)
    return found


def _problem(failure: str, rate: float | None, err: str, rc: int, timed_out: bool, seconds: float) -> str:
    if failure:
        return failure
    if timed_out:
        return f"it did not end within {seconds:g} s"
    if rc == 0 and rate is not None:
        return ""
    lines = [line.strip() for line in err.splitlines() if line.strip()]
    return f"it ended with status {rc}: {(lines or ['no message'])[-1][:MOST]}"


def _entry(line: str) -> Mapping[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        found = load_json(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _rate(value: Any) -> float | None:
    number = read_finite(str(value)) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return round(number, 3) if number is not None and number > 0 else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _texts(value: Any) -> dict[str, str]:
    return {str(key)[:MOST]: str(text)[:MOST] for key, text in value.items()} if isinstance(value, dict) else {}
