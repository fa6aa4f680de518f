# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch many files at once, each in ranged parts over several connections, hashed while they are written.

A part is fetched into memory. What comes next in its file is hashed and appended, so that a partial file is always the
true beginning of its file, an interruption loses no more than the parts in flight, and nothing is read twice.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Protocol, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils._connections import FetchError, TransferError

MEBIBYTE = 1024 * 1024


class Target(Protocol):
    """A file that grows: how long it is, and what comes next."""

    @property
    def length(self) -> int: ...

    def append(self, chunk: memoryview) -> None: ...

    def restart(self) -> None: ...


@dataclass(frozen=True)
class Pace:
    """How fetching is spread: connections, bytes of a part, attempts without progress, seconds between them, a limit.

    Memory is taken for ``2 * connections`` parts. ``limit`` is in bytes per second for all together, 0 for none.
    """

    connections: int = 8
    part: int = 8 * MEBIBYTE
    attempts: int = 4
    backoff: float = 1.0
    limit: int = 0


class Stream(Protocol):
    """What one thread reads from: an opened server or disk."""

    def fill(self, part: Part, view: memoryview, count: Callable[[int], None]) -> None:
        """Fill the buffer of a part from ``part.got`` on, and count there. Raises FetchError or TransferError."""

    def pour(self, job: Job, buffer: bytearray, count: Callable[[int], None]) -> None:
        """Append the whole file, which its source cannot give in parts. Raises FetchError or TransferError."""

    def close(self) -> None: ...


@dataclass
class Job:
    """One file: its address, its whole size, and where it grows. The rest is kept by the fetch."""

    location: str
    size: int
    target: Target
    done: Callable[[], None] = lambda: None
    # What its source has said: where it really is, which version it has, whether it gives parts.
    resolved: str = ""
    version: str = ""
    whole: bool = False
    handed: int = 0
    failures: int = 0
    active: int = 0
    ready: dict[int, tuple[bytearray, int]] = field(default_factory=dict)
    writing: bool = False


@dataclass
class Part:
    """A piece of a job: where it begins, how many bytes it has, and how many of them have come."""

    job: Job
    offset: int
    length: int
    got: int = 0


class Fetch:
    """Several threads over a list of jobs. ``open_stream`` makes each thread's own stream."""

    def __init__(self, jobs: Sequence[Job], open_stream: Callable[[], Stream], pace: Pace) -> None:
        self._pace = pace
        self._open_stream = open_stream
        self._waiting: deque[Job] = deque(job for job in jobs if job.target.length < job.size)
        self._open: list[Job] = []
        self._buffers = [bytearray(pace.part) for _number in range(2 * pace.connections)] if jobs else []
        self._lock = threading.Condition()
        self._failure: BaseException | None = None
        self._limit = _Limit(pace.limit)
        self.transferred = 0
        for job in jobs:
            job.handed = job.target.length

    def run(self) -> int:
        """Fetch all; return the bytes that came. Raises the first error, with every partial file kept.

        A file that is long enough already is not looked at: whoever made the job has to.
        """
        threads = [threading.Thread(target=self._work, daemon=True) for _number in range(self._pace.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            # Not one long wait: a signal ends it.
            while thread.is_alive():
                thread.join(0.5)
        if self._failure:
            raise self._failure
        return self.transferred

    def _work(self) -> None:
        stream = self._open_stream()
        try:
            while True:
                taken = self._take()
                if taken is None:
                    return
                part, buffer = taken
                self._bring(stream, part, buffer)
        except BaseException as exc:  # Whatever it is, the caller gets it.
            with self._lock:
                self._failure = self._failure or exc
                self._lock.notify_all()
        finally:
            stream.close()

    def _take(self) -> tuple[Part, bytearray] | None:
        """Return the next part with a buffer for it, None where nothing is left or something has failed."""
        with self._lock:
            while True:
                if self._failure:
                    return None
                # A buffer for each part that is handed out: the first of a file is never without one.
                part = self._next() if self._buffers else None
                if part:
                    part.job.active += 1
                    return part, self._buffers.pop()
                if not (self._waiting or self._open):
                    return None
                self._lock.wait()

    def _next(self) -> Part | None:
        for job in self._open:
            part = self._part_of(job)
            if part:
                return part
        while self._waiting and len(self._open) < self._pace.connections:
            job = self._waiting.popleft()
            self._open.append(job)
            return self._part_of(job)
        return None

    def _part_of(self, job: Job) -> Part | None:
        # Its first part says how the source gives it; the others wait for that.
        if job.handed >= job.size or job.whole or (job.active and not job.resolved):
            return None
        part = Part(job, job.handed, min(self._pace.part, job.size - job.handed))
        job.handed += part.length
        return part

    def _bring(self, stream: Stream, part: Part, buffer: bytearray) -> None:
        """Fetch a part, in as many attempts as it takes; its buffer stays with it, so that it never waits for one."""
        job = part.job
        while not job.whole:
            before = part.got
            try:
                stream.fill(part, memoryview(buffer)[: part.length], self._count)
            except TransferError as exc:
                self._fail_once(job, exc, part.offset + part.got, progress=part.got > before)
            except WholeOnlyError:
                job.whole = True
            else:
                self._deliver(job, part, buffer)
                return
        self._pour(stream, job, buffer)

    def _pour(self, stream: Stream, job: Job, buffer: bytearray) -> None:
        """Fetch a file in one piece, from its beginning, as often as there are attempts."""
        job.target.restart()
        while job.target.length < job.size:
            try:
                stream.pour(job, buffer, self._count)
            except TransferError as exc:
                self._fail_once(job, exc, job.target.length, progress=False)
                job.target.restart()
        with self._lock:
            self._buffers.append(buffer)
            job.handed = job.size
        self._leave(job)

    def _deliver(self, job: Job, part: Part, buffer: bytearray) -> None:
        """Append what is next of a file, and all that has waited for it."""
        with self._lock:
            job.failures = 0
            job.ready[part.offset] = (buffer, part.length)
            writes = not job.writing
            job.writing = True
        while writes:
            with self._lock:
                found = job.ready.pop(job.target.length, None)
                writes = job.writing = found is not None
            if found:
                job.target.append(memoryview(found[0])[: found[1]])
                with self._lock:
                    self._buffers.append(found[0])
                    self._lock.notify_all()
        self._leave(job)

    def _leave(self, job: Job) -> None:
        """End with a part; the last one of a file ends the file."""
        with self._lock:
            job.active -= 1
            last = job in self._open and job.target.length >= job.size and not job.active
            self._lock.notify_all()
        if last:
            # It may take its time; the others go on.
            job.done()
            with self._lock:
                self._open.remove(job)
                self._lock.notify_all()

    def _fail_once(self, job: Job, exc: TransferError, come: int, progress: bool) -> None:
        """Wait before the next attempt. Raises FetchError where there were enough without progress."""
        with self._lock:
            job.failures = failures = 1 if progress else job.failures + 1
        if failures >= self._pace.attempts:
            raise FetchError(
                f"{job.location}: {exc} (attempt {failures} without progress; {come} of {job.size} bytes came)"
            ) from exc
        self._pause(max(exc.wait, self._pace.backoff * 2 ** (failures - 1)))

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._lock:
            while not self._failure and time.monotonic() < end:
                self._lock.wait(end - time.monotonic())

    def _count(self, length: int) -> None:
        with self._lock:
            self.transferred += length
            failed = self._failure
            # The first bytes of a file say that others may ask for parts of it.
            self._lock.notify_all()
        if failed:
            raise FetchError("another file has failed")
        self._limit.wait(length)


class WholeOnlyError(Exception):
    """A source gives a file in one piece only."""


class _Limit:
    """Lets so many bytes pass in a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def wait(self, length: int) -> None:
        """Wait until these bytes may pass."""
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - 1) + length / self._rate
            delay = self._free_at - now
        if delay > 0:
            time.sleep(delay)
