# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import scheduler as _parallel
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.connections import FetchError, TransferError
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.scheduler import (
    Job,
    Scheduler,
    TransferLimits,
)

PACE = TransferLimits(connections=4, part=100, attempts=3, backoff=0.001)


class Memory:
    """A target that knows when two threads append at once."""

    def __init__(self, content=b""):
        self.content = bytearray(content)
        self._alone = threading.Lock()

    @property
    def length(self):
        return len(self.content)

    def append(self, chunk):
        assert self._alone.acquire(blocking=False), "two threads append to one file"
        for byte in chunk:
            self.content.append(byte)
        self._alone.release()

    def restart(self):
        self.content.clear()


class Source:
    """A stream over contents by location, in pieces and an order that change from run to run."""

    def __init__(self, contents, fault=lambda _part: None):
        self.contents, self.fault, self.open, self.most = contents, fault, set(), 0

    def read_part(self, part, came):
        job = part.job
        self.open.add(id(job))
        self.most = max(self.most, len(self.open))
        job.resolved = job.location
        while part.got < part.length:
            self.fault(part)
            length = min(random.randint(1, 40), part.length - part.got)
            first = part.offset + part.got
            part.buffer[part.got : part.got + length] = self.contents[job.location][first : first + length]
            part.got += length
            came(length)

    def close(self):
        """Nothing is open."""


def jobs_of(contents, source):
    return [Job(name, len(content), Memory(), done=lambda: None) for name, content in contents.items()]


@pytest.fixture
def eager_threads():
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("sizes", [range(0, 9990, 333), [20000]], ids=["many", "one"])
def test_every_byte_gets_to_its_place_whatever_comes_first(eager_threads, sizes):
    contents = {f"file {size}": os.urandom(size) for size in sizes}
    source = Source(contents)
    jobs = jobs_of(contents, source)
    work = Scheduler(jobs, lambda: source, PACE)
    assert work.run() == sum(map(len, contents.values()))
    assert [bytes(job.target.content) for job in jobs] == list(contents.values())
    assert (work.files_done, work.files) == (len(sizes), len(sizes))


def test_one_connection_for_each_file_while_there_are_files(monkeypatch):
    monkeypatch.setattr(_parallel, "count_processors", lambda: 4)
    monkeypatch.setattr(_parallel, "PARALLEL_THRESHOLD_BYTES", 5000)
    contents = {f"file {number}": bytes(5000) for number in range(9)}
    source = Source(contents)
    jobs = jobs_of(contents, source)
    gate = threading.Barrier(4, timeout=10)
    source.fault = lambda part: gate.wait() if part.offset == part.got == 0 and part.job in jobs[:4] else None
    # Four files begin at once, or the gate never opens.
    Scheduler(jobs, lambda: source, PACE).run()
    assert source.most >= 4


@pytest.mark.parametrize(("processors", "size", "begun"), [(16, 900, 2), (16, 5000, 5), (16, 90000, 8), (3, 90000, 3)])
def test_few_bytes_begin_with_few_connections(monkeypatch, processors, size, begun):
    monkeypatch.setattr(_parallel, "count_processors", lambda: processors)
    monkeypatch.setattr(_parallel, "PARALLEL_THRESHOLD_BYTES", 1000)
    contents = {f"file {number}": bytes(size // 10) for number in range(10)}
    source, streams = Source(contents), []
    work = Scheduler(
        jobs_of(contents, source), lambda: streams.append(source) or source, TransferLimits(connections=8, part=100)
    )
    monkeypatch.setattr(_parallel.CpuLoad, "has_headroom", lambda self: False)
    work.run()
    assert len(streams) == begun


@pytest.mark.parametrize(("idle", "most"), [(False, 1), (True, 3)])
def test_connections_are_added_while_the_processors_are_idle(monkeypatch, idle, most):
    class Load:
        """A host that is busy, or not."""

        def has_headroom(self):
            asked.release()
            return idle

    # The first connection waits until it was decided several times whether there are to be more.
    asked, all_of_them, begun = threading.Semaphore(0), threading.Barrier(most, timeout=10), []
    monkeypatch.setattr(_parallel, "count_processors", lambda: 1)
    monkeypatch.setattr(_parallel, "CpuLoad", Load)
    monkeypatch.setattr(_parallel, "MEASURE_SECONDS", 0.001)
    contents = {f"file {number}": os.urandom(300) for number in range(9)}

    def fault(part):
        if threading.current_thread() in begun:
            return
        begun.append(threading.current_thread())
        if not idle:
            assert all(asked.acquire(timeout=10) for _time in range(3))
        # With fewer it never opens.
        all_of_them.wait()

    source = Source(contents, fault)
    jobs = jobs_of(contents, source)
    Scheduler(jobs, lambda: source, TransferLimits(connections=3, part=100, attempts=3, backoff=0)).run()
    assert len(begun) == most
    assert [bytes(job.target.content) for job in jobs] == list(contents.values())


def test_connection_does_not_wait_for_the_file_that_is_ended():
    contents = {"first": os.urandom(250), "second": os.urandom(250)}
    begun = threading.Event()
    source = Source(contents, lambda part: begun.set() if part.job.location == "second" else None)
    jobs = jobs_of(contents, source)
    ended = []
    jobs[0].done = lambda: ended.append(begun.wait(10))
    Scheduler(jobs, lambda: source, TransferLimits(connections=1, part=100)).run()
    assert ended == [True]


def test_file_that_cannot_be_ended_stops_the_fetch():
    contents = {f"file {number}": os.urandom(250) for number in range(20)}
    source = Source(contents)
    jobs = jobs_of(contents, source)

    def fail():
        raise FetchError("wrong")

    jobs[0].done = fail
    work = Scheduler(jobs, lambda: source, TransferLimits(connections=1, part=100))
    with pytest.raises(FetchError, match="wrong"):
        work.run()
    assert work.files_done < work.files


def test_part_that_fails_while_others_come_is_tried_on():
    contents = {"busy": os.urandom(90), "other": os.urandom(2000)}
    progress, failed, failures = threading.Semaphore(0), threading.Semaphore(0), []

    def fault(part):
        if part.job.location == "other":
            # A piece of it has come since the last time.
            progress.release()
            assert failed.acquire(timeout=10)
        elif busy.is_set():
            assert progress.acquire(timeout=10)
            failures.append(part)
            failed.release()
            raise TransferError("busy")

    busy = threading.Event()
    busy.set()
    source = Source(contents, fault)
    jobs = jobs_of(contents, source)
    jobs[1].done = lambda: (busy.clear(), progress.release())
    Scheduler(jobs, lambda: source, TransferLimits(connections=2, part=100, attempts=3, backoff=0)).run()
    assert len(failures) > 10
    assert [bytes(job.target.content) for job in jobs] == list(contents.values())


@pytest.mark.parametrize(("has_fallback", "attempts"), [(True, 1), (False, 3)])
def test_source_that_stalls_is_left_at_once_where_there_is_another(has_fallback, attempts):
    failures = []

    def fault(part):
        failures.append(part)
        raise TransferError("nothing came", stalled=True)

    source = Source({"only": os.urandom(90)}, fault)
    pace = TransferLimits(connections=1, part=100, attempts=3, backoff=0, has_fallback=has_fallback)
    with pytest.raises(
        FetchError, match=rf"only: nothing came \(attempt {attempts} without progress; 0 of 90 bytes are kept"
    ):
        Scheduler(jobs_of(source.contents, source), lambda: source, pace).run()
    assert len(failures) == attempts


def test_few_bytes_with_each_refusal_are_no_progress():
    attempts = [0]

    def fault(part):
        if part.got > attempts[-1]:
            attempts.append(part.got)
            raise TransferError("busy", wait=0.01)

    source = Source({"only": os.urandom(5000)}, fault)
    pace = TransferLimits(connections=1, part=5000, attempts=3, backoff=0, lowest_rate=10_000)
    # Each pause of 0.01 s has to be worth 100 bytes.
    with pytest.raises(FetchError, match=r"only: busy \(attempt 3 without progress"):
        Scheduler(jobs_of(source.contents, source), lambda: source, pace).run()
    assert len(attempts) == 4


def test_connection_that_stalls_alone_is_tried_again():
    contents = {"stalls": os.urandom(90), "other": os.urandom(2000)}
    came, failures = threading.Event(), []

    def fault(part):
        if part.job.location == "other":
            # After its first piece.
            if part.got:
                came.set()
        elif not failures:
            assert came.wait(10)
            failures.append(part)
            raise TransferError("nothing came", stalled=True)

    source = Source(contents, fault)
    jobs = jobs_of(contents, source)
    Scheduler(
        jobs, lambda: source, TransferLimits(connections=2, part=100, attempts=3, backoff=0, has_fallback=True)
    ).run()
    assert failures and [bytes(job.target.content) for job in jobs] == list(contents.values())


def test_part_that_never_comes_keeps_what_lies_before_it():
    contents = {"large": os.urandom(2000)}

    def fault(part):
        if part.offset == 700:
            raise TransferError("gone")

    source = Source(contents, fault)
    jobs = jobs_of(contents, source)
    with pytest.raises(FetchError, match=r"large: gone \(attempt 3 without progress; 700 of 2000 bytes are kept\)"):
        Scheduler(jobs, lambda: source, PACE).run()
    assert jobs[0].target.content == contents["large"][:700]


# In its own process: other tests of this one may have left threads with descriptors behind.
FETCH_MANY = """
import hashlib, resource, sys
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import (
    DownloadRequest, Settings, fetch_files
)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
directory, content = sys.argv[1], b"small"
sha256 = hashlib.sha256(content).hexdigest()
files = [DownloadRequest(f"{directory}/source", f"{directory}/{number}", 5, sha256) for number in range(300)]
fetch_files(files, Settings(connections=4))
"""


def test_many_files_need_few_descriptors(tmp_path):
    (tmp_path / "source").write_bytes(b"small")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-c", FETCH_MANY, str(tmp_path)], env=environment, check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert all((tmp_path / f"{number}").read_bytes() == b"small" for number in range(300))
