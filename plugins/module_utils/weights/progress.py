# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a host is with its weights: written by it, read and put into a line by the controller."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from typing import Callable

# Seconds between two reports on the host, and for how many of them a rate is averaged.
INTERVAL = 1.0
SMOOTHING = 10


@dataclass(frozen=True)
class Progress:
    """Bytes and files of all models of a run, of those that were missing; ``rate`` in bytes per second.

    ``beat`` grows with each report, so that one that does not is of a process that is gone. ``waits_for`` names whose
    end is waited for, empty for nobody.
    """

    model: str = ""
    source: str = ""
    done: int = 0
    total: int = 0
    files_done: int = 0
    files: int = 0
    rate: float = 0.0
    waits_for: str = ""
    pid: int = 0
    beat: int = 0


def line(progress: Progress) -> str:
    """Return one line for people: what, how much of how much, how fast, and how long it will take at that."""
    if progress.waits_for:
        return f"{progress.model}: waits for {progress.waits_for}, which fetches it"
    if not progress.files:
        return f"{progress.model or 'weights'}: looking at what is there, and at the sources"
    share = 100 * progress.done // progress.total if progress.total else 0
    words = [
        f"{progress.model}: {amount(progress.done)} of {amount(progress.total)} ({share} %)",
        f"{progress.files_done} of {progress.files} files",
    ]
    if progress.rate >= 1:
        words.append(f"{amount(progress.rate)}/s")
        words.append(f"{duration((progress.total - progress.done) / progress.rate)} left")
    return ", ".join(words) + (f", from {progress.source}" if progress.source else "")


def summary(transferred: int, seconds: float, files: int, sources: list[str]) -> str:
    """Return the line for the end of a fetch."""
    rate = f" at {amount(transferred / seconds)}/s" if seconds >= 0.1 and transferred else ""
    origin = f" from {', '.join(sources)}" if sources else ""
    return f"{files} files, {amount(transferred)} in {duration(seconds)}{rate}{origin}"


def amount(count: float) -> str:
    """Return bytes for people, in powers of 1000 as links and vendors count."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return seconds for people."""
    whole = int(seconds + 0.5)
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def parse(text: str) -> Progress | None:
    """Return the report in a file's text; None where it is none."""
    try:
        return Progress(**json.loads(text))
    except (ValueError, TypeError):
        return None


class Reporter:
    """Writes what ``look`` returns every second while a with block runs; ``path`` is empty where nobody reads it."""

    def __init__(self, path: str, look: Callable[[], Progress]) -> None:
        self._path = path
        self._look = look
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)
        self._rate = 0.0
        self._last = 0

    def __enter__(self) -> Reporter:
        if self._path:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
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
        """Return the bytes per second of the last reports, the newest counting most; a new source begins anew."""
        grown, self._last = done - self._last, done
        if beat == 0 or grown < 0 or seconds <= 0:
            return 0.0
        weight = max(1 / SMOOTHING, 1 / beat)
        return self._rate + weight * (grown / seconds - self._rate)

    def _write(self, found: Progress, beat: int) -> None:
        report = {**asdict(found), "rate": self._rate, "pid": os.getpid(), "beat": beat}
        partial = f"{self._path}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(report, file)
        os.replace(partial, self._path)
