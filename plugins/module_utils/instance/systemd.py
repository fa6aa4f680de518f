# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``systemctl show`` prints of units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

# What a Unit is made from.
UNIT_PROPERTIES = (
    "ActiveState", "SubState", "InvocationID", "NRestarts", "InactiveExitTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)  # fmt: skip


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties of one unit."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Return the properties of several units by their Id, which must be among the properties."""
    units = (parse_properties(block) for block in text.split("\n\n"))
    return {unit["Id"]: unit for unit in units if "Id" in unit}


@dataclass(frozen=True)
class Unit:
    """The state of an instance's unit, and the id of this run of it; times are seconds since the boot."""

    active: str = "inactive"
    sub: str = "dead"
    invocation: str = ""
    restarts: int = 0
    began: float = 0.0
    active_since: float = 0.0

    @property
    def is_active(self) -> bool:
        """Whether the start is over and vLLM runs."""
        return self.active == "active"

    @property
    def start_seconds(self) -> float | None:
        """How long the start took, None while it has not succeeded."""
        return self.active_since - self.began if self.is_active and self.active_since >= self.began else None

    @property
    def starts(self) -> bool:
        """Whether vLLM starts: it takes memory, and does not answer yet."""
        return self.active == "activating" and self.sub in ("start", "start-post")

    @property
    def runs(self) -> bool:
        """Whether vLLM may have memory of the chips."""
        return self.starts or self.active in ("active", "reloading", "refreshing", "deactivating")

    @property
    def waits(self) -> bool:
        """Whether the unit is on its way to a start."""
        return self.active == "activating" and not self.sub.startswith("auto-restart")

    @property
    def can_end(self) -> bool:
        """Whether vLLM runs or starts, so that it can be ended; a requested stop is not touched."""
        return self.active in ("active", "activating") and not self.sub.startswith("auto-restart")


def parse_unit(found: Mapping[str, str]) -> Unit:
    """Return the unit with these properties; all that are missing count as empty."""
    active, sub, invocation, *numbers = (found.get(name, "") for name in UNIT_PROPERTIES)
    restarts, began, active_since = (int(number or 0) for number in numbers)
    return Unit(active, sub, invocation, restarts, began / 1e6, active_since / 1e6)
