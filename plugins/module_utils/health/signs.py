# SPDX-License-Identifier: GPL-3.0-or-later
"""Find faults in what an instance says about itself, and in what the vendor's tool says about the chips."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Mapping, Sequence

from ..instance.metrics import RUNNING, WAITING, WORK, sums
from ..vendor_stack.counters import ChipCounters
from ..vendor_stack.faults import Event, FaultBook, chip_address

CORRUPTED = "vllm:corrupted_requests_total"
# GET /health fails so many times in a row before the engine counts as dead.
DEAD_AFTER = 2
UNAVAILABLE = (500, 503)
MISSING = "the tool does not list the chip"


def read_metrics(text: str) -> dict[str, float]:
    """Return the metrics that are looked at, summed over engines and models; no values that are no numbers."""
    return sums(text, (*WORK, RUNNING, WAITING, CORRUPTED))


@dataclass
class InstanceSigns:
    """What was seen of one run of an instance; ``stall`` is in seconds, 0 for never."""

    stall: float
    invocation: str = ""
    work: tuple[float, ...] = ()
    moved_at: float = 0.0
    idle_since: float = math.inf
    corrupted: float | None = None
    dead: int = 0
    told: set[str] = field(default_factory=set)

    def saw(self, invocation: str, metrics: Mapping[str, float], health: int, now: float) -> list[str]:
        """Take metrics and the status of GET /health (0 for no answer); return codes of new faults."""
        if invocation != self.invocation:
            self._begin(invocation)
        self.dead = self.dead + 1 if health in UNAVAILABLE else 0
        codes = ["engine_dead"] if self.dead >= DEAD_AFTER else []
        if metrics:
            codes += self._work(metrics, now)
        new = [code for code in codes if code not in self.told]
        self.told.update(new)
        return new

    def _begin(self, invocation: str) -> None:
        self.invocation, self.work, self.moved_at, self.idle_since = invocation, (), 0.0, math.inf
        self.corrupted, self.dead, self.told = None, 0, set()

    def _work(self, metrics: Mapping[str, float], now: float) -> list[str]:
        codes = []
        work = tuple(metrics.get(name, 0.0) for name in WORK)
        running, busy = metrics.get(RUNNING, 0.0), metrics.get(RUNNING, 0.0) + metrics.get(WAITING, 0.0)
        if work != self.work or not running:
            moved, self.work, self.moved_at = work != self.work, work, now
            self.told.discard("no_tokens")
            if busy or moved:
                self.idle_since = math.inf
        elif self.stall and now - self.moved_at >= self.stall:
            codes.append("no_tokens")
        if not busy and self.idle_since == math.inf:
            self.idle_since = now
        corrupted = metrics.get(CORRUPTED)
        if corrupted is not None:
            if self.corrupted is not None and corrupted > self.corrupted:
                self.told.discard("corrupted_answers")
                codes.append("corrupted_answers")
            self.corrupted = corrupted
        return codes

    def idle_for(self, now: float) -> float:
        """Return for how many seconds nothing has run or waited."""
        return max(0.0, now - self.idle_since)


def states_of(
    chips: Sequence[ChipCounters], book: FaultBook, wanted: Sequence[str] = ()
) -> dict[tuple[str, str], Event]:
    """Return the faults that hold at this moment by the vendor's tool, by the fault's name and the chip.

    ``wanted`` are the addresses of the chips that the tool must list.
    """
    events = []
    for chip in chips:
        address = chip_address(chip.chip) or chip.chip
        events += [Event(book.fault("state", text), address) for text in chip.faults]
        if 0 < chip.link_width < chip.link_width_max:
            events.append(Event(book.fault("pcie", "link_narrow"), address))
    events += [Event(book.fault("state", MISSING), address) for address in missing_chips(wanted, chips)]
    return {(event.fault.name, event.chip): event for event in events}


def missing_chips(wanted: Sequence[str], chips: Sequence[ChipCounters]) -> list[str]:
    """Return the wanted chips that the tool does not list.

    Both chips of some cards show one address and some chips none, so as many may be missing.
    """
    present = {address for address in (chip_address(chip.chip) for chip in chips) if address}
    missing = [address for address in wanted if address not in present]
    return missing if len(missing) > len(chips) - len(present) else []


def proof_problem(wanted: Sequence[str], chips: Sequence[ChipCounters], book: FaultBook) -> str:
    """Return why the chips of an instance are not well, empty where they are: each answers, and none has a fault."""
    missing = missing_chips(wanted, chips)
    if missing:
        return f"the vendor's tool does not list {', '.join(missing)}"
    for (name, address), event in sorted(states_of(chips, book).items()):
        if event.fault.takes_out and (not wanted or address in wanted):
            return f"{name} of {address}"
    return ""
