# SPDX-License-Identifier: GPL-3.0-or-later
"""The power of chips, from the output of the vendor's tool, and the energy of a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from ..cann.answers import parse_figures
from ..common.foreign_json import load_json
from ..common.foreign_numbers import read_count, read_finite

# A single sample is too little for a minute.
_FEWEST = 3
COMMANDS = {
    "cuda": ("nvidia-smi", "--query-gpu=index,power.draw,power.limit", "--format=csv,noheader,nounits"),
    "rocm": ("amd-smi", "metric", "--power", "--json"),
    "cann": ("npu-smi", "info"),
}


@dataclass(frozen=True)
class Power:
    """The power of an instance's chips together, and the limit of each of them; a limit of 0 is unknown."""

    watts: float
    limit: float = 0.0


def power_command(stack: str, chips: Sequence[int]) -> tuple[str, ...]:
    """Return the command that shows the power of the chips, empty where nothing measures it (CPU)."""
    return COMMANDS.get(stack, ()) if chips else ()


def parse_power(stack: str, text: str, chips: Sequence[int]) -> Power | None:
    """Return the power of ``chips``, by their numbers on the host; None where the text lacks one of them."""
    parse = {"cuda": _nvidia, "rocm": _amd, "cann": _ascend}.get(stack)
    return parse(text, chips) if parse else None


def energy(samples: Sequence[tuple[float, float]], began: float, seconds: float) -> float | None:
    """Return the joules of ``seconds`` from ``began``; None with too few samples in that time.

    ``samples`` are pairs of a time of the same clock and the watts then.
    """
    within = [watts for at, watts in samples if began <= at <= began + seconds]
    return sum(within) / len(within) * seconds if len(within) >= _FEWEST else None


def _nvidia(text: str, chips: Sequence[int]) -> Power | None:
    found = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        chip, watts = read_count(words[0]), _number(words[1]) if len(words) == 3 else None
        if chip is not None and watts is not None:
            found[chip] = (watts, _number(words[2]) or 0.0)
    if any(chip not in found for chip in chips):
        return None
    # The lowest limit: the slowest chip decides how fast all are.
    return Power(sum(found[chip][0] for chip in chips), min(found[chip][1] for chip in chips))


def _amd(text: str, chips: Sequence[int]) -> Power | None:
    try:
        document = load_json(text)
    except ValueError:
        return None
    # From ROCm 6.4 on the list has a name.
    entries = document.get("gpu_data") if isinstance(document, dict) else document
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        power = entry.get("power") if isinstance(entry, dict) else None
        watts = _amd_watts(power.get("socket_power")) if isinstance(power, dict) else None
        chip = read_count(entry.get("gpu")) if watts is not None else None
        if watts is not None and chip is not None:
            found[chip] = watts
    return Power(sum(found[chip] for chip in chips)) if all(chip in found for chip in chips) else None


def _amd_watts(value: Any) -> float | None:
    """Return the watts in ``140``, ``"140 W"`` or ``{"value": 140, "unit": "W"}``."""
    value = value.get("value") if isinstance(value, dict) else value
    return _number(str(value).replace("W", ""))


def _ascend(text: str, chips: Sequence[int]) -> Power | None:
    rows = [(row.npu, _number(figures.watts or "")) for row, figures in parse_figures(text)]
    if any(chip >= len(rows) for chip in chips):
        return None
    total = 0.0
    for card in {rows[chip][0] for chip in chips}:
        watts = {number: value for number, (name, value) in enumerate(rows) if name == card}
        # A card of two chips shows its power in the row of the first; one chip alone has no figure of its own.
        if None in watts.values() and not set(watts) <= set(chips):
            return None
        known = [value for number, value in watts.items() if number in chips and value is not None]
        if not known:
            return None
        total += sum(known)
    return Power(total)


def _number(text: str) -> float | None:
    return read_finite(text.strip())
