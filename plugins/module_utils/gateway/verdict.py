# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge one engine by its metrics, its errors and its answers; the agent tells HAProxy.

An engine is stuck when requests run and no counter of its work changes for ``stuck_after`` seconds. After
``probe_after`` seconds without requests, and after ``error_limit`` answers 5xx within WINDOW seconds, the agent
requests one token, until it gets one: requests of one client may fail on a healthy engine.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Mapping

from ..instance.metrics import RUNNING, WORK
from .places import Load, Places

UNKNOWN, UP = "", "up"
# The actions that the text of a sick instance begins with, weakest first.
SEVERITIES = ("restart_instance", "reset_chip", "isolate_host")
# Seconds over which errors are counted.
WINDOW = 10.0


@dataclass
class Watched:
    """The state of an instance; ``verdict`` is what the agent found, ``answer`` what it tells HAProxy."""

    stuck_after: float
    probe_after: float
    error_limit: int = 0
    verdict: str = UNKNOWN
    # Why the instance is refusing requests although it works, and whether another server of its service is better.
    refusal: str = ""
    replaceable: bool = False
    # Why its host calls the instance sick, and whether its service can do without it.
    sick: str = ""
    sick_since: float = math.inf
    spare: bool = False
    # The unhealthy server of its group, empty for none.
    incomplete: str = ""
    work: tuple[float, ...] = ()
    # Times when the work changed last, when the instance proved last that it serves, and when it answered last.
    moved_at: float = field(default_factory=time.monotonic)
    proven_at: float = field(default_factory=time.monotonic)
    heard_at: float = field(default_factory=time.monotonic)
    # Times and numbers of answers 5xx. HAProxy's counters of them and of bytes, and when bytes came last.
    errors: tuple[tuple[float, int], ...] = ()
    counted: tuple[int, int] | None = None
    flowed_at: float = -math.inf
    # How many requests HAProxy sends it at once, None for any number. How many it has there, None until it has said so.
    places: Places | None = None
    own: int | None = None
    # Its requests, as it reported them last.
    load: Load | None = None

    @property
    def answer(self) -> str:
        """The answer to HAProxy."""
        if self.incomplete and not self.verdict.startswith("down #hangs"):
            return f"down #{self.incomplete}, which serves together with it, is missing"
        if self.refusal and self.replaceable:
            return f"down #{self.refusal}"
        if self.sick and self.verdict == UP:
            return f"down #sick: {self.sick}" if self.spare else f"up #sick, and the service needs it: {self.sick}"
        return self.verdict

    @property
    def line(self) -> str:
        """The answer with the number of requests at once, which HAProxy reads in front of the reason."""
        if not self.places:
            return self.answer
        words, sharp, reason = self.answer.partition("#")
        return f"{words.rstrip()} maxconn:{self.places.limit(time.monotonic())} {sharp}{reason}".strip()

    @property
    def severity(self) -> int:
        """How sick it is; of several, the sickest goes first."""
        return next((number for number, word in enumerate(SEVERITIES, 1) if self.sick.startswith(word)), 0)

    def lost(self, now: float) -> None:
        """Record that the instance did not answer; the check of /health decides whether it is up."""
        self.work, self.moved_at = (), now
        # Twice, as for an engine that is stuck. One that is stopping answers nothing and completes its streams.
        if self.stuck_after * 2 <= now - max(self.heard_at, self.flowed_at):
            self.verdict = f"down #hangs: no answer for {now - self.heard_at:.0f} s"

    def refused(self, now: float) -> None:
        """Record that nothing listens at the instance's port: it has ended, and so have its requests."""
        self.heard_at = now
        self.lost(now)

    def saw(self, metrics: Mapping[str, float], now: float) -> bool:
        """Update the state from metrics; return whether the agent must request a token."""
        work = tuple(metrics.get(name, 0.0) for name in WORK)
        first, moved = not self.work, work != self.work
        self.heard_at = now
        if self.verdict.startswith("down #hangs: no answer"):
            self.verdict = "down #answers again, and has given no token yet"
        if moved:
            self.work, self.moved_at = work, now
        if moved and not first:
            self.verdict, self.proven_at = UP, now
        return self._stuck_or_idle(metrics, now) or self._suspect(now)

    def _stuck_or_idle(self, metrics: Mapping[str, float], now: float) -> bool:
        if metrics.get(RUNNING, 0.0) > 0:
            if now - self.moved_at < self.stuck_after:
                return False
            if not self.verdict.startswith("down #hangs"):
                self.verdict = f"down #requests run and nothing has moved for {now - self.moved_at:.0f} s"
            # vLLM may still report requests that were all aborted. No new ones arrive, so the agent requests a token.
            return True
        self.moved_at = now
        if self.verdict.startswith("down"):
            return True
        self.verdict = UP
        return bool(self.probe_after) and now - self.proven_at >= self.probe_after

    def _suspect(self, now: float) -> bool:
        """Return whether the instance refused a token, or answered so many requests with errors that a probe is due."""
        recent = sum(number for at, number in self.errors if now - at <= WINDOW)
        return bool(self.refusal) or 0 < self.error_limit <= recent

    def counts(self, errors: int, sent: int, now: float) -> None:
        """Record HAProxy's counters of answers 5xx and of bytes, which begin at zero again with each worker."""
        before, self.counted = self.counted or (errors, sent), (errors, sent)
        new = errors - before[0]
        if sent != before[1]:
            self.flowed_at = now
        if new > 0:
            self.errors = (*(each for each in self.errors if now - each[0] <= WINDOW), (now, new))

    def probed(self, fault: str, now: float, refused: bool = False) -> None:
        """Update the state from a probe; ``fault`` is why there was no token, ``refused`` an answer 5xx."""
        self.proven_at = now
        self.refusal = fault if refused else ""
        if refused:
            return
        if not fault:
            self.verdict, self.moved_at, self.errors = UP, now, ()
        elif self.verdict.startswith("down #requests run") and now - self.flowed_at >= self.stuck_after:
            self.verdict = f"down #hangs: {self.verdict.partition('#')[2]}, and {fault}"
        elif not self.verdict.startswith("down"):
            # The first reason says more, so it stays.
            self.verdict = f"down #{fault}"
