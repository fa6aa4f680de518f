# SPDX-License-Identifier: GPL-3.0-or-later
"""How often an instance is measured, and which of its measurements counts."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint import run_gates
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply, TimedClient
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.gates import (
    Limits,
    MeasuredLoad,
    Prompt,
    Sample,
    figures_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.run_gates import Asker, Gates

LOAD = MeasuredLoad(streams=1, prompts=1, max_tokens=100)


class Measured(Asker):
    """Measures the speeds that it is told to, one after the other."""

    def __init__(self, speeds: list[float]) -> None:
        super().__init__(TimedClient("http://127.0.0.1:9", "", None), "model", 1)
        self.speeds = speeds

    def measure(self, load: MeasuredLoad) -> tuple[list[Sample], float, str]:
        return [Sample(0.02, 100)], 100 / self.speeds.pop(0), ""


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between measurements."""
    waited: list[float] = []
    # Threads of other tests sleep too.
    own = SimpleNamespace(sleep=waited.append, monotonic=time.monotonic)
    monkeypatch.setattr(run_gates, "time", own)
    return waited


def figures(speed: float, **other: Any) -> dict[str, Any]:
    return {**figures_of([Sample(0.02, 100)], 100 / speed, LOAD), **other}


def ask(speeds, baseline=None):
    """Return the speed that counts, whether it passed, and the measurements that were not made."""
    asker = Measured(list(speeds))
    gates = Gates((), 0, LOAD, baseline or {}, Limits(), pause=5.0)
    found, verdicts = asker.ask(gates)
    return found["tokens_per_second"], all(verdict.ok for verdict in verdicts), asker.speeds


@pytest.mark.parametrize(
    ("speeds", "counts", "left", "waited"),
    [
        # Two that agree are enough, and nothing waits for them.
        ([100, 91, 7], 100, [7], []),
        ([91, 100, 7], 100, [7], []),
        # The first was disturbed, or the second, or the one before the last.
        ([30, 100, 98], 100, [], [5.0]),
        ([100, 30, 98], 100, [], [5.0]),
        ([30, 50, 100], 100, [], [5.0]),
    ],
)
def test_a_baseline_is_measured_until_two_measurements_agree(pauses, speeds, counts, left, waited):
    assert ask(speeds) == (counts, True, left)
    assert pauses == waited


def test_a_disturbed_baseline_lets_no_slow_instance_pass(pauses):
    baseline, _passed, _left = ask([35, 100, 100])
    assert ask([40, 40, 40], figures(baseline)) == (40, False, [])
    assert ask([40, 90, 7], figures(baseline)) == (90, True, [7])
    assert pauses == [5.0, 5.0, 5.0, 5.0]


def test_a_measurement_that_passes_counts_though_a_disturbed_one_had_more_tokens(pauses):
    asker = Measured([200, 100])
    late = iter([5.0, 0.02])
    asker.measure = lambda _load: ([Sample(next(late), 100)], 100 / asker.speeds.pop(0), "")
    found, verdicts = asker.ask(Gates((), 0, LOAD, figures(100), Limits(), pause=5.0))
    assert found["tokens_per_second"] == 100 and all(verdict.ok for verdict in verdicts)


def test_an_instance_whose_first_requests_fail_is_asked_nothing_more(monkeypatch, pauses):
    asker, asked = Measured([100]), []
    monkeypatch.setattr(asker._client, "request", lambda *words: asked.append(words) or Reply(500, (), 0.1))
    found, verdicts = asker.ask(Gates((Prompt("a", (), "", 5),), 2, LOAD, {}, Limits()))
    assert (found, len(asked), [verdict.ok for verdict in verdicts]) == ({}, 1, [False])


def test_what_cannot_be_compared_becomes_a_baseline_and_is_measured_as_one(pauses):
    assert ask([35, 100, 100], figures(100, streams=2)) == (100, True, [])
