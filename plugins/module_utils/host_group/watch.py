# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide when this side of an instance on several hosts has to end, because another host is lost.

vLLM does not do this itself: a worker whose head is gone runs on for ever, and a head without its worker answers
GET /health with 200.
"""

from __future__ import annotations

from dataclasses import dataclass, field

# Seconds without a connection: closed sockets are certain, but a few may be replaced by others.
LOST_AFTER = 6.0
# Seconds without an answer, longer than a switch needs to start again.
SILENT_AFTER = 20.0


@dataclass
class Watch:
    """What is known of the other hosts in this run of the unit. It counts only hosts that were connected in it."""

    watched: list[str]
    stall: float = 0.0
    invocation: str = ""
    seen: set[str] = field(default_factory=set)
    missing: dict[str, float] = field(default_factory=dict)
    silent: dict[str, float] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    tokens: float = -1.0
    since: float = 0.0

    def begin(self, invocation: str) -> None:
        """Forget what was seen in another run of the unit."""
        if invocation != self.invocation:
            self.invocation = invocation
            for known in (self.seen, self.missing, self.silent, self.answered):
                known.clear()
            self.tokens = -1.0

    @property
    def complete(self) -> bool:
        """Whether every host is connected now."""
        return self.seen == set(self.watched) and not self.missing

    def connections(self, now: float, counts: dict[str, int]) -> str:
        """Take the number of connections with each host; return why this side has to end, else an empty text."""
        for address in self.watched:
            if counts.get(address):
                self.seen.add(address)
                self.missing.pop(address, None)
            elif address in self.seen and now - self.missing.setdefault(address, now) >= LOST_AFTER:
                return f"no connection with {address} is left"
        return ""

    def answers(self, now: float, answers: dict[str, bool]) -> str:
        """Take which hosts answer; return why this side has to end."""
        for address, silent in self.silences(now, answers).items():
            if address in self.seen:
                return f"{address} has not answered for {silent:.0f} s"
        return ""

    def silences(self, now: float, answers: dict[str, bool]) -> dict[str, float]:
        """Take which hosts answer; return the seconds of those that stopped a while ago."""
        for address, answer in answers.items():
            if answer:
                self.answered.add(address)
                self.silent.pop(address, None)
            elif address in self.answered:
                self.silent.setdefault(address, now)
        return {address: now - since for address, since in self.silent.items() if now - since >= SILENT_AFTER}

    def progress(self, now: float, running: float, tokens: float) -> str:
        """Take running requests and tokens so far; return why this side has to end: requests that do not move."""
        if not running or tokens != self.tokens:
            self.tokens, self.since = tokens, now
        elif self.stall and now - self.since >= self.stall:
            return f"{running:g} requests have run for {now - self.since:.0f} s without a token"
        return ""
