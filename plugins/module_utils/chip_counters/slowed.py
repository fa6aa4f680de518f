# SPDX-License-Identifier: GPL-3.0-or-later
"""Which chips were slowed down by heat or a power brake between two readings of their counters."""

from __future__ import annotations

from typing import Sequence

from ..vendor_stack.counters import ChipCounters, CountersAnswer


def slowed_chips(before: CountersAnswer, after: CountersAnswer, numbers: Sequence[int]) -> list[str]:
    """Return a clause for each of the chips ``numbers`` that was slowed down, such as ``0000:1b:00.0 (hw_slowdown)``.

    The numbers are those of the vendor's tool, which lists its chips in this order. The power limit alone is no
    reason: it acts under every full load.
    """
    first = {chip.chip: chip for chip in before.chips}
    named = {number: chip for number, chip in enumerate(after.chips) if number in numbers}
    clauses = {chip.chip: _reasons(first.get(chip.chip), chip) for _number, chip in sorted(named.items())}
    return [f"{chip} ({', '.join(reasons)})" for chip, reasons in clauses.items() if reasons]


def _reasons(before: ChipCounters | None, after: ChipCounters) -> list[str]:
    rose = {name for name, count in after.slowed.items() if before and count > before.slowed.get(name, count)}
    return sorted({*rose, *after.slowing})
