# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets of tokens of clients and teams: what of them is used, and which are used up."""

from __future__ import annotations

import calendar
import threading
import time
from typing import Any, Callable, Mapping

from .record import DAY

# Seconds for which the tokens of a window are kept, because clocks jump and return. A month has at most 31 days.
KEPT = {"minute": 600, "day": 3 * DAY, "month": 34 * DAY}
# Seconds between two times that those of older ones are forgotten.
FORGET = 60


def window(period: str, now: int) -> tuple[int, int]:
    """Return when the ``minute``, ``day`` or ``month`` of ``now`` begins and ends, in UTC."""
    if period == "month":
        year, month = time.gmtime(now)[:2]
        following = (year + month // 12, month % 12 + 1)
        return calendar.timegm((year, month, 1, 0, 0, 0)), calendar.timegm((*following, 1, 0, 0, 0))
    seconds = {"minute": 60, "day": DAY}[period]
    return now // seconds * seconds, now // seconds * seconds + seconds


class Budgets:
    """The tokens of clients and teams in this minute, day and month; ``reached`` is set when a budget is used up."""

    def __init__(self, limits: Mapping[str, Mapping[str, int]]) -> None:
        self.limits = limits
        self.lock = threading.Lock()
        # The tokens of each owner in the windows that are not long over, by their beginnings.
        self.used: dict[tuple[str, str, int], int] = {}
        self.forgot_at = 0
        self.reached = threading.Event()

    def load(self, used: Callable[[int], list[tuple[str, str, int]]], now: int) -> None:
        """Begin with what a database has used since a time; a minute begins with nothing."""
        begins = {period: window(period, now)[0] for period in ("day", "month")}
        # Both are read before one is counted: where the second fails, all is read again.
        for period, rows in [(period, used(since)) for period, since in begins.items()]:
            for client, team, tokens in rows:
                self._count(client, team, period, begins[period], tokens)

    def add(self, rows: list[dict[str, Any]], now: int) -> None:
        """Count rows of the store, each in the windows of its own time: a clock that jumps and returns forgets none."""
        for period in ("minute", "day", "month"):
            for row in rows:
                begins = window(period, row["at"])[0]
                self._count(row["client"], row["team"], period, begins, row["prompt"] + row["completion"])
        if abs(now - self.forgot_at) >= FORGET:
            self.forgot_at = now
            with self.lock:
                self.used = {key: tokens for key, tokens in self.used.items() if key[2] > now - KEPT[key[1]]}

    def _count(self, client: str, team: str, period: str, begins: int, tokens: int) -> None:
        for owner in (client, f"@{team}"):
            limit = self.limits.get(owner, {}).get(period)
            if limit is None:
                continue
            with self.lock:
                before = self.used.get((owner, period, begins), 0)
                self.used[owner, period, begins] = before + tokens
            if before < limit <= before + tokens:
                self.reached.set()

    def _now(self, now: int) -> dict[tuple[str, str], int]:
        """Return the tokens of each budget in its present window."""
        with self.lock:
            return {
                (owner, period): self.used.get((owner, period, window(period, now)[0]), 0)
                for owner, periods in self.limits.items()
                for period in periods
            }

    def over(self, now: int) -> dict[str, str]:
        """Return what the map should have: for each owner the budget that ends last of those that are used up."""
        found: dict[str, tuple[int, str]] = {}
        for (owner, period), tokens in self._now(now).items():
            limit, ends = self.limits[owner][period], window(period, now)[1]
            if tokens >= limit:
                kind = "team" if owner.startswith("@") else "client"
                value = f"{ends}|{kind}|{owner.lstrip('@')}|{limit}|{period}"
                found[owner] = max(found.get(owner, (0, "")), (ends, value))
        return {owner: value for owner, (_ends, value) in found.items()}

    def text(self, now: int) -> str:
        """Return what Prometheus reads: the tokens of each budget, and those that are used in its present window."""
        lines = []
        for (owner, period), tokens in sorted(self._now(now).items()):
            kind = "team" if owner.startswith("@") else "client"
            labels = f'kind="{kind}",owner="{escaped(owner.lstrip("@"))}",period="{period}"'
            lines.append(f"inference_usage_budget_tokens{{{labels}}} {self.limits[owner][period]}")
            lines.append(f"inference_usage_budget_used_tokens{{{labels}}} {tokens}")
        types = [f"# TYPE inference_usage_budget_{name} gauge" for name in ("tokens", "used_tokens")]
        return "\n".join([*types, *sorted(lines), ""]) if lines else ""


def escaped(text: str) -> str:
    """Return the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
