# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets of tokens of clients and teams, and HAProxy's map of those that are used up, for gateway-usage.py."""

from __future__ import annotations

import calendar
import socket
import threading
import time
from typing import Any, Mapping

from gateway_usage_store import DAY, Store

# Seconds between two looks at HAProxy's map.
SYNC = 0.25
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
    """The tokens of clients and teams in this minute, day and month, and HAProxy's map of those who used them up.

    A new worker of HAProxy begins with the map as the reload saved it, so it is compared again several times a second.
    """

    def __init__(self, limits: Mapping[str, Mapping[str, int]], path: str, stats: str) -> None:
        self.limits, self.path, self.stats = limits, path, stats
        self.lock = threading.Lock()
        # The tokens of each owner in the windows that are not long over, by their beginnings.
        self.used: dict[tuple[str, str, int], int] = {}
        self.forgot_at = 0
        self.reached = threading.Event()
        self.fault = ""

    def load(self, store: Store, now: int) -> None:
        """Begin with what the database has; a minute begins with nothing. Raises sqlite3.Error."""
        for period in ("day", "month"):
            begins = window(period, now)[0]
            for client, team, tokens in store.used(begins):
                self._count(client, team, period, begins, tokens)

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

    def sync(self, now: int) -> None:
        """Change HAProxy's map to what it should have."""
        requested = self.over(now)
        try:
            lines = self._tell(f"show map {self.path}").splitlines()
            present = dict(line.split()[1:3] for line in lines if len(line.split()) == 3 and line.startswith("0x"))
            commands = [f"del map {self.path} {owner}" for owner in present if owner not in requested]
            for owner, value in requested.items():
                if present.get(owner) != value:
                    commands.append(f"{'set' if owner in present else 'add'} map {self.path} {owner} {value}")
            fault = "".join(self._tell(command).strip() for command in commands)
        except (OSError, ValueError) as exc:
            fault = f"{self.stats}: {exc}"
        if fault and fault != self.fault:
            print(f"budgets are not enforced: {fault}", flush=True)
        self.fault = fault

    def _tell(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(self.stats)
            connection.sendall(f"{command}\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode("utf-8", "replace")

    def run(self) -> None:
        """Keep HAProxy's map forever."""
        while True:
            # Without budgets the map may have entries of former ones.
            self.reached.wait(SYNC if self.limits else 20 * SYNC)
            self.reached.clear()
            self.sync(int(time.time()))


def escaped(text: str) -> str:
    """Return the value of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
