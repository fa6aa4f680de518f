# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy's map of those whose budgets are used up."""

import time

from ..common.lines_host import write_line
from ..common.unix_socket_host import ask_root
from .budgets import Budgets

# Seconds between two looks at HAProxy's map.
SYNC = 0.25


class BudgetMap:
    """Keeps HAProxy's map ``path`` as the budgets are; ``synced_at`` is when it last was.

    A new worker of HAProxy begins with the map as the reload saved it, so it is compared again several times a second.
    """

    def __init__(self, budgets: Budgets, path: str, stats: str) -> None:
        self.budgets, self.path, self.stats = budgets, path, stats
        self.fault, self.synced_at = "", 0.0

    def step(self) -> float:
        """Compare the map once, as soon as a budget is used up; return the seconds until the next time."""
        self.budgets.reached.wait(SYNC)
        self.budgets.reached.clear()
        self.sync(int(time.time()))
        return 0.0

    def sync(self, now: int) -> None:
        """Change HAProxy's map to what it should have."""
        requested = self.budgets.over(now)
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
            write_line(f"budgets are not enforced: {fault}")
        self.fault = fault
        if not fault:
            self.synced_at = time.time()

    def _tell(self, command: str) -> str:
        return ask_root(self.stats, command, 5, 30)
