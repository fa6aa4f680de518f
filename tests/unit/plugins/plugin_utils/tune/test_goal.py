# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.goal import (
    Goal,
    better,
    parse_goal,
    worse_by,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.variants import TuneError

GOOD = {"metric": "itl_p99_ms", "concurrency": "64", "limits": {"output_tokens_per_second": 8000, "ttft_ms": 800}}


def test_a_goal():
    goal = parse_goal(GOOD)
    assert goal == Goal("itl_p99_ms", "chat", 64, GOOD["limits"])
    assert goal.describe() == (
        "lowest ITL p99 ms with 64 requests of chat at a time, output tokens/s at least 8000, TTFT ms at most 800"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "tokens"}, "tune_goal.metric: found 'tokens'; "),
        ({"concurrency": 0}, "tune_goal.concurrency: found 0, expected a whole number from 1"),
        ({"concurrency": True}, "tune_goal.concurrency: found true"),
        ({"limit": {}}, "tune_goal: unknown key 'limit'; nearest: 'limits'"),
        ({"limits": {"ttft": 1}}, "tune_goal.limits: found 'ttft'; nearest: 'ttft_ms'"),
        ({"limits": {"ttft_ms": "800"}}, "tune_goal.limits.ttft_ms: found the text '800', expected a number above 0"),
        ({"limits": [1]}, "tune_goal.limits: found [1], expected a mapping"),
        ({"workload": 5}, "tune_goal.workload: found 5"),
    ],
)
def test_a_wrong_goal(change, message):
    with pytest.raises(TuneError) as raised:
        parse_goal({**GOOD, **change})
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("goal", [None, {}, "fast"])
def test_no_goal(goal):
    with pytest.raises(
        TuneError, match=r"expected a mapping such as \{metric: output_tokens_per_second, concurrency: 64\}"
    ):
        parse_goal(goal)


def test_a_missing_key():
    with pytest.raises(TuneError, match=r"tune_goal\.concurrency is missing"):
        parse_goal({"metric": "ttft_ms"})


def test_more_tokens_and_less_time_are_better():
    assert better("output_tokens_per_second", 2, 1) and better("ttft_ms", 1, 2)
    assert worse_by("output_tokens_per_second", 90, 100) == pytest.approx(0.1)
    assert worse_by("start_seconds", 110, 100) == pytest.approx(0.1)
    assert worse_by("start_seconds", 90, 100) < 0
