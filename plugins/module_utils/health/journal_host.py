# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the lines of the health service to the journal."""

from __future__ import annotations

from typing import Callable

from ..common.lines_host import write_line

# Seconds between two lines about one thing.
SAY_EVERY = 60.0


class Journal:
    """What the service says; ``clock`` returns seconds since the epoch."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    @staticmethod
    def say(text: str) -> None:
        """Write a line."""
        write_line(text)

    def say_at_times(self, key: tuple[str, str], text: str, times: int = 1) -> None:
        """Write a line about one thing at most once in SAY_EVERY seconds."""
        now = self._clock()
        at, held = self._told.get(key, (0.0, 0))
        if now - at < SAY_EVERY:
            self._told[key] = (at, held + times)
            return
        more = f" ({held + times} times)" if held + times > 1 else ""
        self._told[key] = (now, 0)
        self.say(f"{text}{more}")
