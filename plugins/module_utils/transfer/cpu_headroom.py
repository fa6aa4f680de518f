# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether the processors have capacity for another connection.

A further thread speeds up a transfer where one connection uses only a part of the link. Where hashing and copying keep
the processors busy, it slows the other threads and the rest of the host.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

# The load is measured over this many seconds; the kernel counts it in hundredths of a second.
MEASURE_SECONDS = 0.1
# A further thread may help where this share of the processors' time is unused, or where the fetch itself uses less.
HEADROOM_SHARE = 0.25
STAT = "/proc/stat"


class Ticks(NamedTuple):
    """Time of all processors since the start, in the kernel's unit: idle, used by this process, and in total."""

    idle: int
    own: float
    all: int


def count_processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count() or 1


def parse_ticks(stat: str, own: float) -> Ticks:
    """Return the ticks in the text of /proc/stat and this process's own; waiting for a disk counts as idle."""
    words = stat.partition("\n")[0].split()
    # user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user and nice.
    numbers = [int(word) for word in words[1:9]]
    return Ticks(sum(numbers[3:5]), own, sum(numbers))


def has_headroom(before: Ticks, now: Ticks) -> bool:
    """Return whether a further thread may help, by the load between two moments."""
    share = HEADROOM_SHARE * (now.all - before.all)
    return now.idle - before.idle >= share or now.own - before.own < share


class CpuLoad:
    """The host's load between two measurements. An unreadable load always means headroom."""

    def __init__(self) -> None:
        self._seen, self._since = _read_ticks(), time.monotonic()

    def has_headroom(self) -> bool:
        """Return whether the processors had time left since the last measurement; False within MEASURE_SECONDS."""
        if time.monotonic() - self._since < MEASURE_SECONDS:
            return False
        before, self._seen, self._since = self._seen, _read_ticks(), time.monotonic()
        return not (before and self._seen) or has_headroom(before, self._seen)


def _read_ticks() -> Ticks | None:
    try:
        with open(STAT, encoding="ascii") as file:
            return parse_ticks(file.readline(), time.process_time() * os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError):
        return None
