# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what changes on a host: towards the requested values, or back to those from before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Mapping, NamedTuple, Sequence

from ..common.foreign_numbers import read_finite
from .settings import IOMMU, SETTINGS, Knob, TuningError

# The values of settings by place: of the requested ones, and of those from before the first change.
Values = Mapping[str, Mapping[str, str]]


class Step(NamedTuple):
    """One value of the host: as it is, and as it will be."""

    setting: str
    place: str
    before: str
    after: str

    @property
    def changes(self) -> bool:
        """Return whether the value must be set."""
        return self.before != self.after


@dataclass(frozen=True)
class Plan:
    """What each setting is and becomes; ``saved`` are the values from before, as they are kept afterwards."""

    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    saved: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def changes(self) -> tuple[Step, ...]:
        """Return the steps that set something."""
        return tuple(step for step in self.steps if step.changes)


def decide(wanted: Values, knobs: Sequence[Knob], saved: Values) -> Plan:
    """Return the plan for a host. Raises TuningError for a value that the host does not take.

    A setting that is no longer requested returns to the values that it had before; nothing else is touched.
    """
    steps: list[Step] = []
    notes: list[str] = []
    kept: dict[str, dict[str, str]] = {}
    for setting in SETTINGS:
        own = [knob for knob in knobs if knob.setting == setting]
        if setting in wanted:
            if not own:
                notes.append(f"{setting} is requested, and this host has nothing to set there")
                continue
            for knob in own:
                target = wanted[setting].get(knob.place, wanted[setting].get("", knob.value))
                _check(knob, target)
                steps.append(Step(setting, knob.place, knob.value, target))
            before = {knob.place: knob.value for knob in own}
            kept[setting] = {**before, **saved.get(setting, {})}
        elif setting in saved:
            steps += [Step(setting, each.place, each.value, saved[setting].get(each.place, each.value)) for each in own]
    return Plan(tuple(steps), tuple(notes), kept)


def _check(knob: Knob, target: str) -> None:
    """Raise TuningError if the host does not take the value."""
    where = f"host_tuning_{knob.setting}: {knob.place}"
    if knob.allowed and target not in knob.allowed:
        raise TuningError(f"{where} does not accept {target!r}; expected one of {', '.join(knob.allowed)}")
    watts = read_finite(target) if knob.most else None
    if watts is not None and not knob.least <= watts <= knob.most:
        raise TuningError(f"{where} does not accept {target}; expected a value from {knob.least:g} to {knob.most:g}")


def reboot_reasons(plan: Plan, wanted: Values, words: Iterable[str], command_line: str) -> list[str]:
    """Return why the host must boot before kernel arguments take effect; ``words`` are those of pass-through.

    Arguments that are no longer requested stay until somebody boots the host: that is no reason for a reboot.
    """
    lacking = [word for word in words if word not in command_line.split()]
    if IOMMU not in wanted or not lacking or not any(step.setting == IOMMU for step in plan.steps):
        return []
    return [f"the kernel's command line has no {' '.join(lacking)} yet"]


def describe(steps: Iterable[Step]) -> list[str]:
    """Return a line for each pair of values of a setting, with the number of places that share it."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for step in steps:
        groups.setdefault((step.setting, _one_line(step.before), _one_line(step.after)), []).append(step.place)
    lines = []
    for (setting, before, after), places in groups.items():
        where = places[0] if len(places) == 1 else f"{len(places)} places, from {places[0]} to {places[-1]}"
        change = f"{before} -> {after}" if before != after else after
        lines.append(f"{setting}: {change} ({where})")
    return lines


def _one_line(value: str) -> str:
    lines = [line for line in value.splitlines() if line and not line.startswith("#")]
    return "; ".join(lines) or "none"
