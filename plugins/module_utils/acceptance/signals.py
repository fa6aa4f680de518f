# SPDX-License-Identifier: GPL-3.0-or-later
"""Clean up when a module is terminated: remove what it created, kill what it started."""

import signal
from typing import Any


def exit_on_signals() -> None:
    """Raise SystemExit in the main thread on SIGTERM and SIGHUP, so that ``finally`` and ``with`` do their work."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)


def _exit(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)
