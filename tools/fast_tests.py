#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the fast unit tests (make fast): one process collects them, and its copies take one file after the other.

Each worker of pytest-xdist would collect all files, and its controller needs a fifth of the time. With shares that are
fixed beforehand, processors are idle while the slowest share waits for its tests.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

TOP = Path(__file__).resolve().parents[1]
UNIT = TOP / "tests/unit"
# Each test here starts Ansible or another program, makes thousands of hosts, or tries thousands of inputs.
SLOW = tuple((UNIT / "slow.txt").read_text(encoding="utf-8").split())
FUZZ = "_fuzz.py"
# Plugins that these tests do not use; together they take a quarter of the time of a short test.
WITHOUT = ("xdist", "xdist.looponfail", "pytest11.testinfra", "cacheprovider")
# These tests write many small files so that they survive a crash; on a disk, that is a seventh of their processor time.
MEMORY = "/dev/shm"  # noqa: S108  a new directory is made there
FORK = multiprocessing.get_context("fork")


def is_slow(path: Path) -> bool:
    """Return whether a file or folder of the unit tests is one that ``make fast`` leaves out."""
    name = path.relative_to(UNIT).as_posix() if path.is_relative_to(UNIT) else ""
    return f"{name}/".startswith(SLOW) or name.startswith(SLOW) or name.endswith(FUZZ)


def by_file(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests of each file, those of the largest file first."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    return [files[path] for path in sorted(files, key=lambda path: (-path.stat().st_size, path))]


def temporary_place() -> str | None:
    """Return where temporary files go: into memory, if programs can run from there."""
    usable = os.access(MEMORY, os.W_OK | os.X_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    return MEMORY if usable else None


class Worker:
    """Runs in a copy of the process: takes files and sends the reports of their tests."""

    def __init__(self, session: pytest.Session, files: list[list[pytest.Item]], taken: Any, pipe: Connection) -> None:
        self.session, self.files, self.taken, self.pipe = session, files, taken, pipe

    def run(self, place: str) -> None:
        """Run files until none is left."""
        # pytest makes its directories there.
        os.environ["TMPDIR"], tempfile.tempdir = place, None
        plugins = self.session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(self)
        # What tests print goes into a file, which all copies would share.
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        items = self._items()
        item = next(items, None)
        while item:
            # What the next test uses too is kept.
            following = next(items, None)
            self.session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        self.pipe.send(None)

    def _items(self) -> Iterator[pytest.Item]:
        while True:
            with self.taken.get_lock():
                number = self.taken.value
                self.taken.value += 1
            if number >= len(self.files):
                return
            yield from self.files[number]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell the first process what comes."""
        self.pipe.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send what counts to the first process."""
        config = self.session.config
        if report.when == "call" or not report.passed:
            self.pipe.send(config.hook.pytest_report_to_serializable(config=config, report=report))


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests in copies of this process, and report on them as pytest does (a hook of pytest)."""
    files, taken, config = by_file(session.items), FORK.Value("i", 0), session.config
    with tempfile.TemporaryDirectory(dir=temporary_place()) as directory:
        pipes, processes = [], []
        # The tests spend much of their time waiting, so four processes run on each processor.
        for number in range(4 * (os.cpu_count() or 1)):
            pipe, theirs = FORK.Pipe(duplex=False)
            place = Path(directory, str(number))
            place.mkdir()
            processes.append(FORK.Process(target=Worker(session, files, taken, theirs).run, args=[str(place)]))
            processes[-1].start()
            theirs.close()
            pipes.append(pipe)
        begun: dict[Any, str] = {}
        broken = []
        while pipes:
            for pipe in cast("list[Connection]", wait(pipes)):
                try:
                    data = pipe.recv()
                except EOFError:
                    data = None
                    broken.append(begun.get(pipe, "its start"))
                if isinstance(data, str):
                    begun[pipe] = data
                elif data:
                    report = config.hook.pytest_report_from_serializable(config=config, data=data)
                    config.hook.pytest_runtest_logreport(report=report)
                else:
                    pipes.remove(pipe)
        for process in processes:
            process.join()
    if broken:
        raise session.Interrupted(f"the process ended in the middle of {', '.join(broken)}")
    return True


def main() -> None:
    """Become pytest."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    without = [f"-pno:{name}" for name in WITHOUT]
    words = ["-m", "pytest", "-q", "-m", "not slow and not long", "-ptools.fast_tests", *without, str(UNIT)]
    os.chdir(TOP)
    os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main()
