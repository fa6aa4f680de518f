# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A loop of a service that nothing ends but the service."""

from __future__ import annotations

import threading
import time
import traceback
from typing import Callable


class Loop:
    """Repeats ``step``, which returns the seconds until the next time; ``pause`` are those after a fault.

    A fault that a step does not expect is reported once with its trace, and the loop goes on.
    """

    def __init__(self, name: str, step: Callable[[], float], pause: float) -> None:
        self.name, self.step, self.pause = name, step, pause
        self.fault = ""

    def once(self) -> float:
        """Take a step; return the seconds until the next one."""
        try:
            wait = self.step()
        except Exception as exc:
            fault = f"{type(exc).__name__}: {exc}"
            if fault != self.fault:
                print(f"{self.name}: {fault}; trying again after {self.pause:g} s", flush=True)
                traceback.print_exc()
            self.fault = fault
            return self.pause
        if self.fault:
            print(f"{self.name}: works again", flush=True)
        self.fault = ""
        return wait

    def run(self) -> None:
        """Take steps forever."""
        while True:
            time.sleep(self.once())

    def start(self) -> None:
        """Run in a thread."""
        threading.Thread(target=self.run, name=self.name, daemon=True).start()
