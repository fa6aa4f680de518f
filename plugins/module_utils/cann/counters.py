# SPDX-License-Identifier: GPL-3.0-or-later
"""Error counters and health of Huawei's chips, from npu-smi.

UNCONFIRMED on hardware: the names are those of Huawei's manuals, and for HCCS those of outputs that others published.
npu-smi reports no reason for lower clocks.
"""

from __future__ import annotations

import re
from typing import Mapping, Sequence

from ..common.foreign_numbers import read_count
from ..vendor_stack.answers import CommandResult
from ..vendor_stack.counters import ChipCounters, CountersAnswer, counts_of, explain_silence, first_number, scaled
from .answers import ChipRow, parse_figures

TABLE = ("npu-smi", "info")
# The health of a chip that works; NA, UNKNOWN and words of later versions are not.
WELL = "OK"
HEALTHS = ("Warning", "Alarm", "Critical")
# The queries for each chip, by the type of npu-smi's ``info -t``.
TYPES = ("ecc", "pcie-err", "hccs")

_FIELD = re.compile(r"^[^\S\n]*([A-Za-z][\w ()/-]*):[^\S\n]*(\S.*)$", re.MULTILINE)
# A counter's name ends so; an aggregate repeats the count since production, so its rise is the same error.
_COUNTER = re.compile(r"(Error Count|Isolated Pages? Count|Retry Count)$", re.IGNORECASE)
MIB = 1024 * 1024


def commands_of(row: ChipRow) -> list[tuple[str, ...]]:
    """Return the commands that report the counters of one chip."""
    return [("npu-smi", "info", "-t", kind, *row.arguments) for kind in TYPES]


def parse_counters(table: CommandResult, details: Mapping[tuple[str, str], Sequence[CommandResult]]) -> CountersAnswer:
    """Return the counters of each chip of npu-smi's table; ``details`` are the results of commands_of by NPU and chip.

    The address is no key: both chips of a card may show one.
    """
    rows = parse_figures(table.out)
    if not rows:
        return CountersAnswer(problem=f"npu-smi info reports no chips: {explain_silence(table)}")
    chips = []
    for row, figures in rows:
        fields: dict[str, str] = {}
        for answer in details.get((row.npu, row.chip), ()):
            found = ((name.strip(), value.strip()) for name, value in _FIELD.findall(answer.out))
            fields.update((name, _total(value)) for name, value in found if _COUNTER.search(name))
        celsius = first_number(figures.celsius)
        chips.append(
            ChipCounters(
                chip=row.address or f"npu {row.npu}",
                errors=counts_of(fields),
                faults=faults_of(row.health),
                celsius={} if celsius is None else {"chip": celsius},
                watts=first_number(figures.watts),
                utilization=scaled(figures.busy, 0.01),
                memory_used=scaled(figures.used, MIB),
                memory_total=scaled(figures.total, MIB),
            )
        )
    return CountersAnswer(tuple(chips))


def faults_of(health: str) -> tuple[str, ...]:
    """Return the fault that a health is; one that is not known counts as one."""
    if health.upper() == WELL:
        return ()
    known = health.capitalize() in HEALTHS
    return (f"npu-smi reports the health {health.capitalize()}" if known else "npu-smi reports an unknown health",)


def _total(value: str) -> str:
    """Return the sum of a counter that has a number for each link of HCCS, as in ``[0 0 5]``; another one as it is."""
    words = value.strip("[]").split() if value.startswith("[") else []
    numbers = [number for number in map(read_count, words) if number is not None]
    return str(sum(numbers)) if numbers and len(numbers) == len(words) else value
