# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which instances of a host are sick, why, and when they are well again.

A mark says that one fault of one chip keeps one instance out of service. It stays until what the catalogue names has
happened (a new start of the instance or of the host, or a person's word), and until a proof has passed after that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Collection, Mapping

from ..vendor_stack.faults import ACTIONS, BACKS, BY_BOOT, BY_HAND, BY_RESTART, ISOLATE, RESTART, Event

SCHEMA = 1
# A chip that has come back so often within so many seconds stays out of service until a person has looked.
FLAPS, FLAP_WINDOW = 3, 86400.0
# Seconds for which a chip is out of service at least, by how often it has come back within that time.
HOLDS = (0.0, 300.0, 1800.0)
EVERYTHING = "all"


class LedgerError(ValueError):
    """The saved state is damaged; the message describes the damage, as a clause."""


@dataclass(frozen=True)
class Run:
    """One run of an instance's unit: systemd's id, when it began (seconds since the boot), whether it is ready."""

    invocation: str = ""
    began: float = 0.0
    ready: bool = False


@dataclass
class Mark:
    """Why an instance is sick. ``since`` is a time of the clock, ``boot`` and ``run`` are ids of when it was seen."""

    fault: str
    chip: str
    instance: str
    action: str
    back: str
    meaning: str
    since: float
    boot: str
    run: str
    count: int = 1
    proving: bool = False
    note: str = ""

    @property
    def reason(self) -> str:
        """Why, in words."""
        where = f" of {self.chip}" if self.chip else ""
        note = f" ({self.note})" if self.note else ""
        return f"{self.fault}{where}: {self.meaning}{note}"


@dataclass
class Ledger:
    """The marks of a host. ``returns`` has the times when a chip came back, ``counts`` how often a fault was seen."""

    marks: dict[tuple[str, str, str], Mark] = field(default_factory=dict)
    returns: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    # When each chip was last reset, in seconds since the boot: an error record may be older, and come later.
    resets: dict[str, float] = field(default_factory=dict)

    def record(
        self, event: Event, runs: Mapping[str, Run], now: float, boot: str, times: int = 1, at: float | None = None
    ) -> list[Mark]:
        """Take a fault that was seen; return the new marks.

        ``runs`` are the instances that it concerns. ``at`` is its time in seconds since the boot: an instance that
        began after it is well, if a new start is what it takes, and so is a chip that was reset after it.
        """
        fault, chip = event.fault, event.chip
        if fault.clears:
            self._end_by_reset(chip)
            if at is not None:
                self.resets[chip] = at
        self.counts[fault.name, chip] = self.counts.get((fault.name, chip), 0) + times
        new = []
        for instance, run in runs.items() if fault.takes_out else ():
            ended = {BY_RESTART: run.began, BY_BOOT: self.resets.get(chip)}.get(fault.back)
            if at is not None and ended is not None and at < ended:
                continue
            key = (fault.name, chip, instance)
            if key in self.marks:
                mark = self.marks[key]
                mark.count, mark.boot, mark.run, mark.proving = mark.count + times, boot, run.invocation, False
                continue
            mark = Mark(
                fault.name, chip, instance, fault.action, fault.back, fault.meaning, now, boot, run.invocation, times
            )
            self._slow_flapping(mark, now)
            self.marks[key] = mark
            new.append(mark)
        return new

    def _slow_flapping(self, mark: Mark, now: float) -> None:
        """Let a chip that comes and goes wait longer each time, and in the end for a person."""
        times = len(self._recent(mark.chip, now))
        if times >= FLAPS:
            mark.back, mark.note = BY_HAND, f"it has come back {times} times within a day"
        elif self._hold(mark, now):
            minutes = self._hold(mark, now) / 60
            mark.note = f"it has come back within a day, so it is out of service for {minutes:.0f} minutes at least"

    def _recent(self, chip: str, now: float) -> list[float]:
        return [at for at in self.returns.get(chip, ()) if now - at < FLAP_WINDOW]

    def _hold(self, mark: Mark, now: float) -> float:
        """Return for how many seconds a mark stays at least; nobody waits after a person's word."""
        if not mark.chip or mark.back == BY_HAND:
            return 0.0
        return HOLDS[min(len(self._recent(mark.chip, now)), len(HOLDS) - 1)]

    def _is_held(self, mark: Mark, now: float) -> bool:
        # A clock that was set back must not hold a chip for ever.
        return 0 <= now - mark.since < self._hold(mark, now)

    def advance(self, runs: Mapping[str, Run], boot: str) -> None:
        """Note what has ended since the marks were made: runs of units, the boot, instances that are gone."""
        for key, mark in list(self.marks.items()):
            run = runs.get(mark.instance)
            if run is None:
                del self.marks[key]
            elif (mark.back == BY_RESTART and run.invocation not in ("", mark.run)) or (
                mark.back == BY_BOOT and boot != mark.boot
            ):
                mark.proving = True

    def _end_by_reset(self, chip: str) -> None:
        """Note that a chip was reset."""
        for mark in self.marks.values():
            if mark.chip == chip and mark.back == BY_BOOT:
                mark.proving = True

    def awaiting_boot(self) -> dict[tuple[str, str], str]:
        """Return why only a new start of the host helps, by fault and chip: chips that are lost, or did not start."""
        marks = (mark for mark in self.marks.values() if mark.action == ISOLATE and mark.back == BY_BOOT)
        return {(mark.fault, mark.chip): mark.reason for mark in marks if not mark.proving}

    def end_states(self, present: Collection[tuple[str, str]]) -> None:
        """Note which states the vendor's tool no longer reports; ``present`` are those that it does, by fault and chip.

        A state that a new start of the host ends has ended without one: the chip was reset, or answers again.
        """
        for mark in self.marks.values():
            if mark.fault.startswith("state ") and mark.back == BY_BOOT and (mark.fault, mark.chip) not in present:
                mark.proving = True

    def clear(self, chip: str) -> int:
        """Take a person's word that a chip (or ``all``) is well; return how many marks wait for the proof now.

        How often the chip has come back is forgotten: a person has looked at it.
        """
        found = [mark for mark in self.marks.values() if chip in (EVERYTHING, mark.chip)]
        for mark in found:
            mark.proving = True
        self.returns = {} if chip == EVERYTHING else {key: value for key, value in self.returns.items() if key != chip}
        return len(found)

    def of_instance(self, instance: str) -> list[Mark]:
        """Return the marks of an instance, the strongest action first, then the oldest."""
        found = [mark for mark in self.marks.values() if mark.instance == instance]
        return sorted(found, key=lambda mark: (-ACTIONS.index(mark.action), mark.since, mark.fault))

    def to_prove(self, runs: Mapping[str, Run], now: float) -> list[str]:
        """Return the ready instances for which only the proof is missing."""
        waiting = {mark.instance for mark in self.marks.values() if not mark.proving or self._is_held(mark, now)}
        names = sorted({mark.instance for mark in self.marks.values()} - waiting)
        return [name for name in names if runs[name].ready]

    def to_restart(self, runs: Mapping[str, Run]) -> list[str]:
        """Return the instances that a new start would make well, and that still run as they did."""
        names = sorted({mark.instance for mark in self.marks.values()})
        return [
            name
            for name in names
            if runs[name].ready
            and all(mark.proving or mark.action == RESTART for mark in self.of_instance(name))
            and any(not mark.proving and mark.back == BY_RESTART for mark in self.of_instance(name))
        ]

    def proven(self, instance: str, now: float) -> list[Mark]:
        """Take a proof that has passed; return the marks that it ended."""
        ended = [mark for mark in self.of_instance(instance) if mark.proving]
        for mark in ended:
            del self.marks[mark.fault, mark.chip, mark.instance]
        for chip in {mark.chip for mark in ended}:
            self.returns[chip] = [*self._recent(chip, now), now]
        return ended

    def failed(self, instance: str, why: str) -> None:
        """Take a proof that has failed."""
        for mark in self.of_instance(instance):
            if mark.proving:
                mark.note = f"the proof failed: {why}"

    def document(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {"schema": SCHEMA, "marks": [asdict(mark) for mark in self.marks.values()], "returns": self.returns}

    @classmethod
    def from_document(cls, data: Any) -> Ledger:
        """Return the saved state. Raises LedgerError."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise LedgerError(f"expected an object with the schema {SCHEMA}")
        ledger = cls()
        for entry in _list(data, "marks"):
            mark = _mark(entry)
            ledger.marks[mark.fault, mark.chip, mark.instance] = mark
        returns = data.get("returns")
        if not isinstance(returns, dict):
            raise LedgerError("returns is no object")
        for chip, times in returns.items():
            if not isinstance(times, list) or not all(isinstance(at, (int, float)) for at in times):
                raise LedgerError(f"returns.{chip} is no list of times")
            ledger.returns[str(chip)] = [float(at) for at in times]
        return ledger


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    found = data.get(key)
    if not isinstance(found, list):
        raise LedgerError(f"{key} is no list")
    return found


_KINDS = {"str": str, "float": (int, float), "int": int, "bool": bool}


def _mark(entry: Any) -> Mark:
    if not isinstance(entry, dict) or set(entry) != {each.name for each in fields(Mark)}:
        raise LedgerError("a mark has other keys than expected")
    for each in fields(Mark):
        if not isinstance(entry[each.name], _KINDS[str(each.type)]):  # type: ignore[arg-type]
            raise LedgerError(f"{each.name} of a mark is {entry[each.name]!r}")
    if entry["action"] not in ACTIONS or entry["back"] not in BACKS:
        raise LedgerError(f"a mark has the action {entry['action']!r} and ends by {entry['back']!r}")
    return Mark(**entry)
