# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetch many files at once, each in ranged parts over several connections, hashed while they are written.

A part is fetched into memory. The next bytes of its file are hashed and appended as they arrive. So a partial file is
always the exact beginning of its file, an interruption loses only the parts in flight, and nothing is read twice.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Callable, Protocol, Sequence

from .connections import FetchError, TransferError, redact_url
from .cpu_headroom import MEASURE_SECONDS, CpuLoad, count_processors
from .publishers import Publishers

MEBIBYTE = 1024 * 1024
# The number of files published at once: the disk handles their syncs together.
MAX_PUBLISHING = 8
# One connection is started at once for this many bytes: a smaller transfer ends before more threads would help it.
PARALLEL_THRESHOLD_BYTES = 64 * MEBIBYTE


class Target(Protocol):
    """A file that is being written: its length, and its next bytes."""

    @property
    def length(self) -> int: ...

    def append(self, chunk: memoryview) -> None: ...

    def restart(self) -> None: ...


@dataclass(frozen=True)
class TransferLimits:
    """Limits of a transfer: connections, bytes of a part, attempts without progress, seconds between them, bandwidth.

    Memory is allocated for at most ``2 * connections`` parts. ``limit`` is in bytes per second for all, 0 for none.
    ``has_fallback`` means that there is another source, so one that stalls on all connections is abandoned at once.
    ``lowest_rate`` is in bytes per second.
    """

    connections: int = 8
    part: int = 8 * MEBIBYTE
    attempts: int = 4
    backoff: float = 1.0
    limit: int = 0
    has_fallback: bool = False
    lowest_rate: int = 0


class Stream(Protocol):
    """The source that one thread reads from: an open server or disk."""

    def read_part(self, part: Part, came: Callable[[int], None]) -> None:
        """Fill the buffer of a part from ``part.got`` on, and report each piece. Raises FetchError or TransferError."""

    def read_whole(self, part: Part, came: Callable[[int], None]) -> None:
        """Append the whole file of a source that does not support ranges. Raises FetchError or TransferError."""

    def close(self) -> None: ...


@dataclass
class Job:
    """One file: its address, its full size, and its target. The scheduler keeps the rest."""

    location: str
    size: int
    target: Target
    done: Callable[[], None] = lambda: None
    # What its source has reported: its final address, its version, whether it supports ranges.
    resolved: str = ""
    version: str = ""
    whole: bool = False
    assigned: int = 0
    active: int = 0
    # The parts that are being downloaded or wait to be appended, in order.
    parts: deque[Part] = field(default_factory=deque)
    writing: bool = False
    # Whether the threads have been notified that others may take parts of the file.
    shared: bool = False


@dataclass
class Part:
    """A piece of a job: its offset, its bytes, how many of them were received and how many were appended."""

    job: Job
    offset: int
    length: int
    buffer: mmap.mmap
    got: int = 0
    written: int = 0


class Scheduler:
    """Fetch a list of jobs with several threads. ``open_stream`` opens the stream of each thread.

    The progress can be read at any time: ``files`` and ``size`` (bytes) of all jobs, ``had`` bytes from earlier runs,
    ``transferred`` bytes since, ``files_done``.
    """

    def __init__(self, jobs: Sequence[Job], open_stream: Callable[[], Stream], pace: TransferLimits) -> None:
        self._limits = pace
        self._open_stream = open_stream
        self._waiting: deque[Job] = deque(job for job in jobs if job.target.length < job.size)
        self._open: list[Job] = []
        self._buffers: list[mmap.mmap] = []
        self._buffers_left = 2 * pace.connections
        self._threads = 0
        self._ends, self._ending = Publishers(MAX_PUBLISHING), 0
        self._lock = threading.Condition()
        self._failure: BaseException | None = None
        self._limit = _RateLimit(pace.limit)
        for job in jobs:
            job.assigned = job.target.length
        self.files, self.size = len(jobs), sum(job.size for job in jobs)
        self.resumed = sum(job.assigned for job in jobs)
        self.transferred = 0
        self.files_done = len(jobs) - len(self._waiting)

    def run(self) -> int:
        """Fetch all files; return the bytes received. Raises the first error, and keeps every partial file.

        A file of full length is not checked here; the caller must check it.
        """
        load = CpuLoad()
        threads = [self._start_thread() for _number in range(self._initial_connections())]
        # The list may grow during the loop.
        for thread in threads:
            # Several short waits instead of a long one, so that a signal can end them.
            while thread.is_alive():
                can_grow = self._threads < self._limits.connections
                thread.join(MEASURE_SECONDS if can_grow else 0.5)
                if can_grow and thread.is_alive() and load.has_headroom():
                    threads.append(self._start_thread())
        self._ends.close()
        if self._failure:
            raise self._failure
        return self.transferred

    def _initial_connections(self) -> int:
        """Return the number of connections to start with: one per processor, and fewer for few bytes."""
        return min(
            self._limits.connections, count_processors(), max(2, (self.size - self.resumed) // PARALLEL_THRESHOLD_BYTES)
        )

    def _start_thread(self) -> threading.Thread:
        with self._lock:
            self._threads += 1
            self._lock.notify_all()
        thread = threading.Thread(target=self._run_thread, daemon=True)
        thread.start()
        return thread

    def _run_thread(self) -> None:
        stream = self._open_stream()
        try:
            while True:
                part = self._wait_for_part()
                if part is None:
                    return
                self._fetch_part(stream, part)
        except BaseException as exc:  # Any error at all is passed to the caller.
            with self._lock:
                self._failure = self._failure or exc
                self._lock.notify_all()
        finally:
            stream.close()

    def _wait_for_part(self) -> Part | None:
        """Return the next part with a buffer for it, None where nothing is left or a thread has failed."""
        with self._lock:
            while True:
                if self._failure or not (self._waiting or self._open):
                    return None
                # Each part in flight needs a buffer: the first part of a file always has one.
                part = self._choose_part() if self._buffers or self._buffers_left else None
                if part:
                    return part
                self._lock.wait()

    def _choose_part(self) -> Part | None:
        # While there are enough files, each uses one connection: parts that arrive in order need not wait in memory.
        if self._waiting and self._ending < MAX_PUBLISHING and len(self._open) - self._ending < self._threads:
            self._open.append(self._waiting.popleft())
            return self._part_of(self._open[-1])
        # The first part shows how the source serves a file; the other parts wait for that.
        ready = [
            job for job in self._open if job.assigned < job.size and not job.whole and (job.resolved or not job.active)
        ]
        return self._part_of(min(ready, key=lambda job: job.active)) if ready else None

    def _part_of(self, job: Job) -> Part:
        if not self._buffers:
            self._buffers_left -= 1
            self._buffers.append(_allocate_buffer(self._limits.part))
        part = Part(job, job.assigned, min(self._limits.part, job.size - job.assigned), self._buffers.pop())
        job.assigned += part.length
        job.active += 1
        job.parts.append(part)
        return part

    def _fetch_part(self, stream: Stream, part: Part) -> None:
        """Fetch a part, in several attempts where needed; it keeps its buffer, so that it never waits for one."""
        job, tries = part.job, _Attempts(self._limits)
        while part.got < part.length and not job.whole:
            tries.begin(self.transferred)
            try:
                stream.read_part(part, lambda length: self._append_received(job, length))
            except TransferError as exc:
                self._pause(tries.wait(job, exc, self.transferred, part.length - part.got))
            except WholeOnlyError:
                self._fetch_whole(stream, part)
        self._finish_part(job)

    def _fetch_whole(self, stream: Stream, part: Part) -> None:
        """Fetch a file in one piece from its beginning, in several attempts where needed."""
        job, tries = part.job, _Attempts(self._limits)
        with self._lock:
            if len(job.parts) > 1:
                raise FetchError(
                    f"{redact_url(job.location)}: the server served parts of the file before, now it does not"
                )
            job.whole, job.assigned = True, job.size
            job.parts.clear()
        job.target.restart()
        while job.target.length < job.size:
            try:
                stream.read_whole(part, self._count)
            except TransferError as exc:
                # The file starts again from its first byte, so the bytes received so far are not progress.
                self._pause(tries.wait(job, exc, 0, job.size))
                job.target.restart()
        with self._lock:
            self._buffers.append(part.buffer)

    def _append_received(self, job: Job, length: int) -> None:
        """Record bytes received for a part of a file, and append its next bytes."""
        self._count(length)
        with self._lock:
            if job.resolved and not job.shared:
                job.shared = True
                self._lock.notify_all()
            if job.writing:
                return
            job.writing = True
        while True:
            with self._lock:
                head = self._next_to_append(job)
                until = head.got if head else 0
                if head is None or until == head.written:
                    job.writing = False
                    return
            with memoryview(head.buffer) as view:
                job.target.append(view[head.written : until])
            head.written = until

    def _next_to_append(self, job: Job) -> Part | None:
        """Return the part with the next bytes of a file, and reclaim the buffers of appended parts."""
        while job.parts and job.parts[0].written == job.parts[0].length:
            self._buffers.append(job.parts.popleft().buffer)
            self._lock.notify_all()
        return job.parts[0] if job.parts else None

    def _finish_part(self, job: Job) -> None:
        """Finish a part; the last part of a file finishes the file."""
        with self._lock:
            job.active -= 1
            last = job in self._open and job.target.length >= job.size and not job.active
            self._ending += last
            self._lock.notify_all()
        if last:
            self._ends.add(lambda: self._publish(job))

    def _publish(self, job: Job) -> None:
        failure = None
        try:
            job.done()
        except BaseException as exc:  # Any error at all is passed to the caller.
            failure = exc
        with self._lock:
            self._failure = self._failure or failure
            self._ending -= 1
            self._open.remove(job)
            self.files_done += failure is None
            self._lock.notify_all()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._lock:
            while not self._failure and time.monotonic() < end:
                self._lock.wait(end - time.monotonic())

    def _count(self, length: int) -> None:
        with self._lock:
            self.transferred += length
            failed = self._failure
        if failed:
            raise FetchError("another file has failed")
        self._limit.wait(length)


def _allocate_buffer(size: int) -> mmap.mmap:
    """Return memory that the kernel allocates as it is written."""
    buffer = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


class _Attempts:
    """The attempts at one part. Attempts while other parts arrive do not count: a server may serve few at once.

    Bytes between two attempts count as progress if they keep the lowest rate, the pause included, or are half of the
    remaining bytes. Otherwise a server that sends a few bytes with each refusal would be retried forever.
    """

    def __init__(self, pace: TransferLimits) -> None:
        self._limits = pace
        self._failures = 0
        self._transferred = -1
        self._begun_at = 0
        self._needed = 0.0

    def begin(self, transferred: int) -> None:
        """Record the bytes received before an attempt."""
        self._begun_at = transferred

    def wait(self, job: Job, exc: TransferError, transferred: int, left: int) -> float:
        """Return the seconds before the next attempt; ``left`` are the missing bytes.

        Raises FetchError after too many attempts without progress.
        """
        progress = transferred - self._transferred
        self._failures = 1 if progress > 0 and progress >= self._needed else self._failures + 1
        self._transferred = transferred
        in_vain = exc.stalled and self._limits.has_fallback and transferred == self._begun_at
        if in_vain or self._failures >= self._limits.attempts:
            raise FetchError(
                f"{redact_url(job.location)}: {exc} (attempt {self._failures} without progress; "
                f"{job.target.length} of {job.size} bytes are kept)"
            ) from exc
        pause = max(exc.wait, self._limits.backoff * 2.0 ** (self._failures - 1))
        self._needed = min(self._limits.lowest_rate * pause, left / 2)
        return pause


class WholeOnlyError(Exception):
    """A source serves a file in one piece only."""


class _RateLimit:
    """A limit of bytes per second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def wait(self, length: int) -> None:
        """Wait until this many bytes are allowed."""
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - 1) + length / self._rate
            delay = self._free_at - now
        if delay > 0:
            time.sleep(delay)
