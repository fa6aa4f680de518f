# SPDX-License-Identifier: GPL-3.0-or-later
"""Follow the kernel's log, /dev/kmsg, and collect the faults in it."""

from __future__ import annotations

import errno
import functools
import os
import select
import stat
import threading
from dataclasses import dataclass
from typing import Iterator

from ..common.repeated import Repeated
from ..vendor_stack.faults import Event, FaultBook
from ..vendor_stack.kernel_records import parse_record

# A record of the kernel has at most 8 KiB.
CHUNK = 65536
# Seconds between two looks at a file or a pipe that has nothing new.
PAUSE = 0.2
# Different faults between two looks at them. A log has far fewer, and forged lines cannot fill the memory.
MOST_FAULTS = 1024


@dataclass
class Seen:
    """A fault in the log: how often, and when last (microseconds since the boot, None where the line has no time)."""

    event: Event
    times: int
    at: int | None


class KernelLog(threading.Thread):
    """Reads the log in the background. ``after`` is the number of the last record that was taken in this boot."""

    def __init__(self, path: str, book: FaultBook, after: int = -1, loop: Repeated | None = None) -> None:
        super().__init__(daemon=True)
        self.path, self.book, self.last = path, book, after
        self.loop = loop or Repeated("A line of the kernel's log", functools.partial(print, flush=True))
        self.lines = 0
        self.lost = 0
        self.problem = ""
        self._seen: dict[tuple[str, str], Seen] = {}
        self._lock = threading.Lock()

    def take(self) -> tuple[list[Seen], int]:
        """Return the faults since the last call, and the number of the last record that was read."""
        with self._lock:
            seen, self._seen = self._seen, {}
            return list(seen.values()), self.last

    def run(self) -> None:
        """Follow the log until the process ends."""
        wait = threading.Event()
        while True:
            try:
                for line in self._follow(wait):
                    # Whatever a program has made the kernel print ends no thread.
                    self.loop.attempt(functools.partial(self._read, line))
            except OSError as exc:
                self.problem = f"{self.path}: {exc.strerror}"
            wait.wait(1.0)

    def _follow(self, wait: threading.Event) -> Iterator[str]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            self.problem = ""
            rest = b""
            while True:
                try:
                    data = os.read(descriptor, CHUNK)
                except BlockingIOError:
                    select.select([descriptor], [], [])
                    continue
                except BrokenPipeError:
                    # The kernel has overwritten records; the next read returns the oldest that is left.
                    self.lost += 1
                    continue
                except OSError as exc:
                    # A record that is larger than the buffer.
                    if exc.errno != errno.EINVAL:
                        raise
                    continue
                if not data:
                    wait.wait(PAUSE)
                    if stat.S_ISREG(status.st_mode) and self._replaced(descriptor, status):
                        return
                    continue
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[-CHUNK:]
                for line in lines:
                    yield line.decode("utf-8", "replace")
        finally:
            os.close(descriptor)

    def _replaced(self, descriptor: int, status: os.stat_result) -> bool:
        """Return whether a file has another one in its place, or has become shorter."""
        now = os.stat(self.path)
        return now.st_ino != status.st_ino or now.st_size < os.lseek(descriptor, 0, os.SEEK_CUR)

    def _read(self, line: str) -> None:
        self.lines += 1
        record = parse_record(line)
        if record is None or (record.number is not None and record.number <= self.last):
            return
        event = self.book.read(record)
        with self._lock:
            self.last = self.last if record.number is None else record.number
            if event is None:
                return
            key = (event.fault.name, event.chip)
            if key in self._seen:
                # In the order of their last records: one that clears comes after those that it clears.
                seen = self._seen.pop(key)
                self._seen[key] = Seen(event, seen.times + 1, record.at)
            elif len(self._seen) < MOST_FAULTS:
                self._seen[key] = Seen(event, 1, record.at)
