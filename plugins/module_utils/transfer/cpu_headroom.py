# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another connection is worth its thread: as long as the processors have time.

A further thread speeds up a link of which one connection takes only a part. Where hashing and copying keep the
processors busy it is in the way of the others, and of what else runs on the host.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

# Seconds over which the load is measured; the kernel counts it in hundredths of one.
MEASURE_SECONDS = 0.1
# A further thread may help where so much of the processors' time is unused, or where the fetch itself uses less.
HEADROOM_SHARE = 0.25
STAT = "/proc/stat"


class Ticks(NamedTuple):
    """Time of all processors since the start, in the kernel's unit: idle, used by this process, and the whole."""

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
    """Return what the text of /proc/stat says beside what the process used; waiting for a disk is idle."""
    words = stat.partition("\n")[0].split()
    # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice already.
    numbers = [int(word) for word in words[1:9]]
    return Ticks(sum(numbers[3:5]), own, sum(numbers))


def has_headroom(before: Ticks, now: Ticks) -> bool:
    """Whether a further thread may help, after what the processors did between two moments."""
    share = HEADROOM_SHARE * (now.all - before.all)
    return now.idle - before.idle >= share or now.own - before.own < share


class CpuLoad:
    """The host's load, from one step to the next. Where it cannot be read there is always time."""

    def __init__(self) -> None:
        self._seen, self._since = _read_ticks(), time.monotonic()

    def has_headroom(self) -> bool:
        """Whether the processors could have done more since the last step; never before a step is over."""
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
