# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import cpu_headroom as _crew
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.cpu_headroom import (
    CpuLoad,
    Ticks,
    count_processors,
    has_headroom,
    parse_ticks,
)

STAT = "cpu  100 20 30 400 50 6 7 8 90 10\ncpu0 50 10 15 200 25 3 3 4 45 5\n"


def test_idle_time_is_that_of_all_processors_and_guests_count_once():
    assert parse_ticks(STAT, 2.5) == Ticks(450, 2.5, 621)


def test_kernel_without_the_later_columns():
    assert parse_ticks("cpu 1 2 3 4", 0) == Ticks(4, 0, 10)


@pytest.mark.parametrize(
    ("idle", "own", "expected"),
    [(0, 90, False), (24, 76, False), (25, 75, True), (100, 0, True), (0, 25, False), (0, 24, True)],
)
def test_there_is_time_while_a_quarter_is_left_or_others_take_the_rest(idle, own, expected):
    assert has_headroom(Ticks(1000, 40, 5000), Ticks(1000 + idle, 40 + own, 5100)) is expected


def test_processors_are_those_that_the_process_may_use():
    assert count_processors() == len(os.sched_getaffinity(0))


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A host whose clock and load are set."""

    class Host:
        now, own = 100.0, 0.0

        def load(self, idle, busy):
            # All of it is ours.
            self.own = busy / os.sysconf("SC_CLK_TCK")
            (tmp_path / "stat").write_text(f"cpu {busy} 0 0 {idle} 0 0 0 0 0 0\n")

    found = Host()
    found.load(0, 0)
    monkeypatch.setattr(_crew, "STAT", str(tmp_path / "stat"))
    monkeypatch.setattr(_crew.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(_crew.time, "process_time", lambda: found.own)
    return found


def test_load_is_that_since_the_last_step(host):
    load = CpuLoad()
    assert not load.has_headroom(), "no step is over"
    for idle, busy, expected in [(100, 0, True), (100, 100, False), (130, 170, True)]:
        host.now += 2 * _crew.MEASURE_SECONDS
        host.load(idle, busy)
        assert load.has_headroom() is expected


@pytest.mark.parametrize("content", [None, "", "cpu\n", "no numbers here"])
def test_load_that_cannot_be_read_stops_nothing(host, monkeypatch, tmp_path, content):
    if content is None:
        (tmp_path / "stat").unlink()
    else:
        (tmp_path / "stat").write_text(content)
    load = CpuLoad()
    host.now += 2 * _crew.MEASURE_SECONDS
    assert load.has_headroom()
