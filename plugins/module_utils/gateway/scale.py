# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide how many replicas of a service work: more within seconds, fewer one by one and slowly.

Requests that wait are the sign of too few, wherever they wait. What the replicas run meanwhile is what they can take,
so no setting says it. A replica leaves only when the most of the last ten minutes fits into the others. As one
leaves in ten minutes at most, and only what has left can come back, a load that rises and falls changes the number
once in five minutes at most.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Sequence

from ..instance.scale_door import SLEEP, START, STOP, WAKE

# What a replica does, as the gateway and its host see it. LOST: it should serve and does not, or nobody knows.
SERVING, STARTING, ASLEEP, STOPPED, LOST = "serving", "starting", "asleep", "stopped", "lost"
# Requests have to wait for so many seconds before a replica wakes, which takes a second, or starts.
WAKE_AFTER, UP_AFTER = 1.0, 3.0
# A replica leaves after so many seconds without a change, and when their highest load fits into the others.
DOWN_AFTER = 600.0
# The part of what the others can take that this highest load may fill.
ROOM = 0.7
# As for places.py: a sixteenth of what runs may wait in an engine. By Little's law a request then waits for a sixteenth
# of the time of an answer, so this is a bound of the latency too.
PART = 16
# Seconds until a replica that was asked to start or wake shows it, and until one that did not is asked again. So long
# too few may serve: the check of a server may fail once.
SHOWS, AGAIN = 10.0, 300.0
# Seconds until a replica that has begun to serve has its part of the requests: gateway_slowstart is ten.
SETTLES = 20.0


@dataclass(frozen=True)
class Replica:
    """A replica; ``held``: a person or a rollout has it. ``resident``: it sleeps and wakes, else it stops and starts.

    ``places``: requests that it takes at once, by its plan. ``fixed``: it always serves. ``silent``: its
    host, which could change it, does not answer.
    """

    name: str
    state: str
    places: int
    running: int = 0
    held: bool = False
    resident: bool = False
    fixed: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Action:
    """What is to be done with a replica, and why; ``verb`` is empty where nothing is."""

    verb: str
    name: str
    why: str


@dataclass
class Scale:
    """The number of replicas of a service: ``least`` serve, at most ``most`` have chips.

    More than ``most`` serve after somebody has started them; they leave one by one.
    """

    least: int
    most: int
    # Seconds of a wait until a replica starts. Longer than an engine's checks are apart: it has to say so twice.
    up_after: float = UP_AFTER
    # What a replica takes, by the last wait of ``up_after`` and by what it has run since then; 0 before the first one.
    capacity: float = 0.0
    # The most that each ran in the present wait: at its end fewer run, and the reports of the engines are older.
    ran: float = 0.0
    # Since when requests wait, since when fewer than ``least`` serve, when the number changed last, how many serve.
    waiting_since: float = math.inf
    lacking_since: float = math.inf
    changed_at: float = -math.inf
    served: int = 0
    # Since when each serves.
    since: dict[str, float] = field(default_factory=dict)
    # The loads of the last seconds, each lower than those before it.
    peaks: deque[tuple[float, int]] = field(default_factory=deque)
    asked: dict[str, float] = field(default_factory=dict)

    def decide(self, replicas: Sequence[Replica], waiting: int, now: float) -> Action:
        """Return what is to be done now; ``waiting`` are the requests that wait at all gateways and in the engines."""
        serving = [each for each in replicas if each.state == SERVING and not each.held]
        each_runs = self._each_runs(serving, now)
        if len(serving) > self.served or any(each.held for each in replicas):
            # What site.yml starts, or a rollout or a person returns to service, stays for ten minutes. And a gateway
            # that begins to decide has not seen the load before.
            self.changed_at = now
        self.served = len(serving)
        self._note(sum(each.running for each in replicas), each_runs or 0.0, waiting, now)
        coming = [each for each in replicas if not each.held and self._comes(each, now)]
        have = len(serving) + len(coming)
        self.lacking_since = min(self.lacking_since, now) if have < self.least else math.inf
        wanted = self._wanted(serving, each_runs, waiting, now)
        if have < wanted:
            return self._add(replicas, have, wanted, waiting, now)
        if coming:
            return Action("", "", f"{coming[0].name} is about to serve")
        return self._remove(replicas, serving, now)

    def _each_runs(self, serving: Sequence[Replica], now: float) -> float | None:
        """Return what a replica runs, by those that have taken their part of the requests; None if none has yet."""
        # Those that serve when a gateway begins to decide have theirs.
        self.since = {each.name: self.since.get(each.name, now if self.peaks else -math.inf) for each in serving}
        settled = [each.running for each in serving if now - self.since[each.name] >= SETTLES]
        return sum(settled) / len(settled) if settled else None

    def _takes(self, serving: Sequence[Replica]) -> float:
        """Return what a replica takes, by its plan before any wait."""
        return self.capacity or sum(each.places for each in serving) / len(serving)

    def _note(self, running: int, each_runs: float, waiting: int, now: float) -> None:
        """Remember the load."""
        if waiting > running // PART:
            self.waiting_since, self.ran = min(self.waiting_since, now), max(self.ran, each_runs)
            if self.ran and now - self.waiting_since >= self.up_after:
                self.capacity = max(1.0, self.ran)
        else:
            self.waiting_since, self.ran = math.inf, 0.0
            self.capacity = max(self.capacity, each_runs) if self.capacity else 0.0
        load = running + waiting
        while self.peaks and self.peaks[-1][1] <= load:
            self.peaks.pop()
        self.peaks.append((now, load))
        while self.peaks[0][0] < now - DOWN_AFTER:
            self.peaks.popleft()

    def _comes(self, replica: Replica, now: float) -> bool:
        """Return whether a replica is about to serve."""
        just_asked = now - self.asked.get(replica.name, -math.inf) < SHOWS
        return replica.state == STARTING or (just_asked and replica.state in (ASLEEP, STOPPED, LOST))

    def _wanted(self, serving: Sequence[Replica], each_runs: float | None, waiting: int, now: float) -> int:
        """Return how many replicas should serve: ``least`` at least, and more while requests wait."""
        if not serving and waiting:
            # Nobody else answers them.
            return max(self.least, 1)
        least = self.least if now - self.lacking_since >= SHOWS else 0
        if now - self.waiting_since < WAKE_AFTER:
            return least
        # As many as would run all of it. One is asked at a time, for as long as requests wait.
        takes = self._takes(serving) if each_runs is None else each_runs
        load = sum(each.running for each in serving) + waiting
        return max(least, min(math.ceil(load / max(1.0, takes)), self.most))

    def _add(self, replicas: Sequence[Replica], have: int, wanted: int, waiting: int, now: float) -> Action:
        """Return which replica wakes or starts."""
        why = f"{waiting} requests wait, {have} of {wanted} replicas serve or are about to"
        if sum(each.state in (SERVING, STARTING) for each in replicas) >= self.most:
            return Action("", "", f"{why}, and max is {self.most}")
        able = [
            each
            for each in replicas
            if each.state in (ASLEEP, STOPPED)
            and not (each.held or each.fixed)
            and not SHOWS <= now - self.asked.get(each.name, -math.inf) < AGAIN
            and not self._comes(each, now)
        ]
        if not able:
            return Action("", "", f"{why}, and no other one can be started")
        # The first one that sleeps, because it serves in a second.
        first = min(able, key=lambda each: (each.state != ASLEEP, each.name))
        if first.state != ASLEEP and have >= max(self.least, 1) and now - self.waiting_since < self.up_after:
            return Action("", "", f"{why}, since {now - self.waiting_since:.0f} s")
        self.asked[first.name] = self.changed_at = now
        return Action(WAKE if first.state == ASLEEP else START, first.name, why)

    def _remove(self, replicas: Sequence[Replica], serving: Sequence[Replica], now: float) -> Action:
        """Return which replica sleeps or stops."""
        left = len(serving) - 1
        silent = [each.name for each in replicas if each.silent]
        leaving = [each for each in serving if not each.fixed]
        if left < self.least or not leaving:
            return Action("", "", f"{len(serving)} replicas serve, and min is {self.least}")
        if silent:
            # Another gateway may see it, and decide about the others meanwhile.
            return Action("", "", f"the host of {silent[0]} does not answer, and none leaves meanwhile")
        most, room = self.peaks[0][1], int(left * self._takes(serving) * ROOM)
        surplus = len(serving) > self.most
        if most > room and not surplus:
            return Action("", "", f"{most} requests at once need {len(serving)} replicas")
        if now - self.changed_at < DOWN_AFTER:
            return Action("", "", f"{left} replicas would do; {DOWN_AFTER - (now - self.changed_at):.0f} s left")
        last = min(leaving, key=lambda each: (each.running, [-ord(letter) for letter in each.name]))
        self.changed_at = now
        self.asked.pop(last.name, None)
        why = f"{most} requests at once in {DOWN_AFTER:.0f} s, and {left} replicas take {room}"
        why = f"{len(serving)} replicas serve, and max is {self.most}" if surplus else why
        return Action(SLEEP if last.resident else STOP, last.name, why)
