# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the measurements, and what an interrupted run continues with."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.records import Records
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.run import Seeds, run_steps
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.workloads import Step

from tests.fakes.benches import CHAT, taken

STEPS = [Step(CHAT, 1, 8), Step(CHAT, 8, 32)]


class Host:
    """Takes measurements until limit of them."""

    def __init__(self, limit=1000):
        self.asked, self.limit = [], limit

    def measure(self, measurement):
        if len(self.asked) == self.limit:
            raise RuntimeError("died")
        self.asked.append(measurement)
        return taken(speed=len(self.asked))


@pytest.fixture
def records(tmp_path):
    found = Records(str(tmp_path), "h", "i", "p" * 64)
    with found.opened():
        yield found


def run(records, host, lines=None, seeds=None):
    return run_steps(STEPS, 3, records, host.measure, (lines if lines is not None else []).append, seeds or Seeds())


def test_each_step_is_warmed_up_and_measured(records):
    host, lines = Host(), []
    found = run(records, host, lines)
    assert [(each.concurrency, each.requests) for each in host.asked] == [(1, 1), *[(1, 8)] * 3, (8, 8), *[(8, 32)] * 3]
    # The warm-ups, first and fifth, are not counted.
    assert [record["result"]["output_throughput"] for record in found] == [2, 3, 4, 6, 7, 8]
    assert lines[0] == "chat, 1 at a time: warm-up" and len(lines) == 8
    assert lines[-1] == "[6/6] chat, 8 at a time, run 3 of 3: 8.0 tok/s, TTFT 25.0 ms, ITL p99 3.7 ms"


def test_no_seed_is_used_twice(records):
    host = Host()
    run(records, host)
    assert len({each.seed for each in host.asked}) == 8


def test_an_interrupted_run_continues(records):
    broken, lines = Host(limit=6), []
    with pytest.raises(RuntimeError, match="died"):
        run(records, broken)
    host = Host()
    found = run(records, host, lines)
    # The step that was interrupted is warmed up again.
    assert [(each.concurrency, each.requests) for each in host.asked] == [(8, 8), (8, 32), (8, 32)]
    assert [record["result"]["output_throughput"] for record in found] == [2, 3, 4, 6, 2, 3]
    assert lines[0].startswith("[1/6] chat, 1 at a time, run 1 of 3: 2.0 tok/s") and lines[0].endswith(
        "(measured earlier)"
    )


def test_a_finished_run_measures_nothing(records):
    run(records, Host())
    host = Host()
    assert len(run(records, host)) == 6 and not host.asked


def test_a_base_gives_the_same_seeds_again():
    one, two = Seeds(7), Seeds(7)
    assert one.seed("a") == two.seed("a") != one.seed("b") and Seeds(8).seed("a") != one.seed("a")
