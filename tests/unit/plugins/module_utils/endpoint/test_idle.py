# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.idle import (
    EngineLoad,
    read_load,
    wait_until_idle,
)

BUSY, FREE = EngineLoad(2, 1), EngineLoad()


def reply(text, status=200, failure=""):
    return Reply(status, tuple((0.0, line.encode()) for line in text.split("\n")), 0.1, failure)


METRICS = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a {b} c"} 2.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
vllm:num_requests_waiting{engine="1",model_name="a"} 0.0 1795315287
"""


def test_gauges_are_summed_over_engines():
    assert read_load(reply(METRICS)) == EngineLoad(3, 4)
    assert read_load(reply("vllm:num_requests_running 0\nvllm:num_requests_waiting 0")).idle


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (reply("x", 404), "GET /metrics answered 404"),
        (reply(METRICS, 200, "the connection broke off"), "GET /metrics: the connection broke off"),
        (reply("up 1"), "its metrics lack vllm:num_requests_running and vllm:num_requests_waiting"),
        (reply("vllm:num_requests_running 0"), "its metrics lack vllm:num_requests_waiting;"),
        (
            reply("vllm:num_requests_running x\nvllm:num_requests_waiting 0"),
            "num_requests_running is 'x', expected a number",
        ),
        (Reply(0, (), 5.0, "no answer within 5 s"), "no answer within 5 s"),
    ],
)
def test_what_is_not_known_is_not_idle(given, words):
    load = read_load(given)
    assert words in load.problem and not load.idle


def test_who_does_not_listen_has_nothing_to_do():
    assert read_load(Reply(0, (), 0.0, "connection refused, nothing listens on 127.0.0.1:8000")).idle


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def wait(loads, timeout, settle):
    """Wait with these loads, one a look; the last one stays."""
    clock, left = Clock(), list(loads)
    return wait_until_idle(lambda: left.pop(0) if len(left) > 1 else left[0], timeout, settle, clock, clock.sleep)


def test_an_idle_engine_has_to_stay_so():
    quiet = wait([FREE], 300, 1)
    assert quiet.idle and 1.0 <= quiet.seconds < 1.3
    quiet = wait([FREE, FREE, BUSY, FREE], 300, 1)
    assert quiet.idle and 1.6 <= quiet.seconds < 1.9


def test_a_busy_one_is_given_up_at_the_deadline():
    quiet = wait([BUSY], 3, 1)
    assert not quiet.idle and quiet.load == BUSY and 3.0 <= quiet.seconds < 3.3


def test_one_that_is_idle_at_the_deadline_may_settle():
    quiet = wait([BUSY] * 16 + [FREE], 3, 1)
    assert quiet.idle or quiet.seconds < 3.3
    quiet = wait([BUSY] * 14 + [FREE], 3, 1)
    assert quiet.idle and quiet.seconds > 3


def test_without_time_one_look_decides():
    assert wait([FREE, BUSY], 0, 0).idle
    assert not wait([BUSY, FREE], 0, 0).idle
