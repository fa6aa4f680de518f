# SPDX-License-Identifier: GPL-3.0-or-later
"""A loop of a service that nothing ends but the service."""

import functools
import threading
import time
from typing import Callable

from .repeated import Repeated


class Loop:
    """Repeats ``step``, which returns the seconds until the next time; ``pause`` are those after a fault."""

    def __init__(self, name: str, step: Callable[[], float], pause: float) -> None:
        self.name, self.step, self.pause = name, step, pause
        self.repeated = Repeated(name, functools.partial(print, flush=True))

    def once(self) -> float:
        """Take a step; return the seconds until the next one."""
        waits: list[float] = []
        return waits[0] if self.repeated.attempt(lambda: waits.append(self.step())) else self.pause

    def run(self) -> None:
        """Take steps forever."""
        while True:
            time.sleep(self.once())

    def start(self) -> None:
        """Run in a thread."""
        threading.Thread(target=self.run, name=self.name, daemon=True).start()
