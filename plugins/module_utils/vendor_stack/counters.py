# SPDX-License-Identifier: GPL-3.0-or-later
"""The counters and states of one chip by the vendor's tool: errors, throttling, faults, link, temperature, power."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Mapping, Sequence

from ..common.foreign_numbers import read_finite
from ..common.foreign_text import quote_foreign
from .answers import CommandResult

# A longer value is no number and its unit.
_LONGEST_VALUE = 100


@dataclass(frozen=True)
class ChipCounters:
    """One chip at one moment.

    ``chip`` is its PCI address, for Ascend NPU/chip. ``errors`` are counters of errors since the driver was loaded, or
    longer: a rise means new errors. ``slowed`` are counters of heat and power brakes: a rise means that the chip was
    slowed down; ``slowing`` are those that act at this moment. ``capped`` is whether the power limit acts, which is
    normal under full load. ``faults`` are states that a person must correct. ``link_width`` and ``link_width_max`` are
    PCIe lanes, ``link_gen`` and ``link_gen_max`` generations, 0 where unknown. ``celsius`` has temperatures by sensor,
    ``watts`` and ``watts_limit`` are None where unknown, and so are ``utilization`` (0 to 1), ``memory_used`` and
    ``memory_total`` (bytes) and ``joules`` (energy so far). ``hertz`` has clocks by their names.
    """

    chip: str
    errors: Mapping[str, int] = field(default_factory=dict)
    slowed: Mapping[str, int] = field(default_factory=dict)
    slowing: tuple[str, ...] = ()
    capped: bool = False
    faults: tuple[str, ...] = ()
    link_width: int = 0
    link_width_max: int = 0
    link_gen: int = 0
    link_gen_max: int = 0
    celsius: Mapping[str, float] = field(default_factory=dict)
    watts: float | None = None
    watts_limit: float | None = None
    utilization: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    joules: float | None = None
    hertz: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the counters as plain data, JSON-serialisable."""
        return asdict(self)


@dataclass(frozen=True)
class CountersAnswer:
    """The chips that a tool reported; ``problem`` is the reason where it reported none, empty otherwise."""

    chips: tuple[ChipCounters, ...] = ()
    problem: str = ""


def first_number(text: Any) -> float | None:
    """Return the number that a value of a tool begins with: 121.88 of "121.88 W"; None for N/A and the like."""
    words = str(text)[:_LONGEST_VALUE].strip().split(" ", 1)
    return read_finite(words[0].rstrip("x%"))


def scaled(value: Any, factor: float) -> float | None:
    """Return the number that a value of a tool begins with, times a factor; None for N/A and the like."""
    number = first_number(value)
    return None if number is None else number * factor


def explain_silence(result: CommandResult) -> str:
    """Return the last line of a command that reported no chips, for a message; else its exit status."""
    lines = (result.err.strip() or result.out.strip()).splitlines()
    return quote_foreign(lines[-1].strip() if lines else f"exit status {result.rc}")


def counts_of(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the values that are whole numbers, by their names; N/A and missing values are left out."""
    numbers = {name: first_number(value) for name, value in values.items()}
    return {name: int(number) for name, number in numbers.items() if number is not None}


def add_log_errors(chips: Sequence[ChipCounters], found: Mapping[str, Mapping[str, int]]) -> tuple[ChipCounters, ...]:
    """Return the chips with the errors of the kernel's log added; ``found`` has counts by chip and name.

    A chip that appears only in the log (it fell off the bus) is added.
    """
    known = [replace(chip, errors={**chip.errors, **found.get(chip.chip, {})}) for chip in chips]
    lost = sorted(set(found) - {chip.chip for chip in chips})
    return (*known, *(ChipCounters(name, errors=found[name]) for name in lost))
