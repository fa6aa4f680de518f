# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the progress of a fetch on the host every second, for the controller to read."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict
from typing import Callable

from ..common.files_host import make_directories, publish
from .progress import Progress

# Seconds between two reports on the host, and the number of reports over which the rate is averaged.
INTERVAL = 1.0
SMOOTHING = 10


class Reporter:
    """Writes the result of ``look`` every second while a with block runs; ``path`` is empty if it is not read."""

    def __init__(self, path: str, look: Callable[[], Progress]) -> None:
        self._path = path
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._rate = 0.0
        self._last = 0

    def __enter__(self) -> Reporter:
        if self._path:
            make_directories(os.path.dirname(self._path))
            self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ended.set()
        if self._path:
            self._thread.join()
            os.unlink(self._path)

    def _report(self) -> None:
        beat, before = 0, time.monotonic()
        while True:
            now, found = time.monotonic(), self._look()
            self._rate = self._averaged(found.done, now - before, beat)
            before, beat = now, beat + 1
            self._write(found, beat)
            if self._ended.wait(INTERVAL):
                return

    def _averaged(self, done: int, seconds: float, beat: int) -> float:
        """Return the bytes per second of the last reports, the newest counting most; a new source starts at 0."""
        grown, self._last = done - self._last, done
        if beat == 0 or grown < 0 or seconds <= 0:
            return 0.0
        weight = max(1 / SMOOTHING, 1 / beat)
        return self._rate + weight * (grown / seconds - self._rate)

    def _write(self, found: Progress, beat: int) -> None:
        report = {**asdict(found), "rate": self._rate, "pid": os.getpid(), "beat": beat}
        publish(self._path, json.dumps(report), durable=False)
