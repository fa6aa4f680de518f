# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask the vendor's tool and the instances, beside the service, so that it never hangs."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping

from ..chip_counters.read_host import ROCM, read_counters
from ..common.repeated import Repeated
from ..instance.systemd import Unit
from ..rocm.tools_host import RecordsAnswer, read_records
from ..vendor_stack.counters import CountersAnswer
from .instances_host import Instances
from .signs import read_metrics


@dataclass
class Look:
    """What an instance said about itself: the status of /health, and its metrics."""

    health: int
    metrics: Mapping[str, float]


@dataclass
class Answer:
    """What the vendor's tool said, and how long it took for the counters."""

    counters: CountersAnswer
    seconds: float
    records: RecordsAnswer = field(default_factory=RecordsAnswer)


class Background:
    """Repeats a look at something that may hang, so that the service never does."""

    def __init__(self, look: Callable[[], Any], every: float, step: Repeated) -> None:
        self.look, self.every, self.step = look, every, step
        self.results: queue.Queue[Any] = queue.Queue(maxsize=4)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.step.attempt(lambda: self.results.put(self.look()))
            time.sleep(self.every)

    def take(self) -> Any:
        """Return the newest result since the last call, None for none."""
        newest = None
        while not self.results.empty():
            newest = self.results.get_nowait()
        return newest


def ask_counters(stack: str) -> CountersAnswer:
    """Ask the vendor's tool of a stack for the counters and states of all chips; the log is read elsewhere."""
    return read_counters(stack, device="")


def ask_tool(stack: str) -> Answer:
    """Ask the vendor's tool of a stack about all chips."""
    began = time.monotonic()
    counters = ask_counters(stack)
    seconds = time.monotonic() - began
    return Answer(counters, seconds, read_records() if stack == ROCM else RecordsAnswer())


def look_at(instances: Instances, units: Mapping[str, Unit]) -> dict[str, Look]:
    """Ask every instance that runs."""
    found = {}
    for name, unit in list(units.items()):
        if unit.invocation:
            health, text = instances.read_signs(name)
            found[name] = Look(health, read_metrics(text))
    return found
