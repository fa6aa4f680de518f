# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a worker, which answers nobody; test_verification_host.py waits for servers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint import ready
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import Reply
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.unit import UnitState


class Unit:
    """Stands for a unit that goes through states, one at each look."""

    name = "vllm@big.service"

    def __init__(self, *states):
        self.states = list(states)

    def state(self):
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


def state(active, sub, restarts=0, result="success"):
    return UnitState("loaded", active, sub, result, restarts, 0, 0, 42, "one", False)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(ready.time, "sleep", lambda _seconds: None)


STARTING, RUNNING = state("activating", "start-post"), state("active", "running")


def test_a_worker_is_ready_when_its_unit_is_active():
    unit = Unit(STARTING, STARTING, STARTING, RUNNING)
    assert ready.wait_until_ready(None, ready.Watch(unit), 60).problem == ""
    assert unit.states == [RUNNING]


@pytest.mark.parametrize(("start", "late", "looks"), [(1, 0.5, 8), (30, 0.7, 65), (600, 2, 600)])
def test_the_end_of_a_start_is_noticed_soon_and_a_long_start_is_not_asked_too_often(monkeypatch, start, late, looks):
    clock = [0.0]

    class Slow(Unit):
        asked = 0

        def state(self):
            self.asked += 1
            return RUNNING if clock[0] >= start else STARTING

    # Not the module itself, which threads of other tests use.
    own = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(ready, "time", own)
    unit = Slow()
    wait = ready.wait_until_ready(None, ready.Watch(unit), 900)
    assert start <= wait.seconds <= start + late
    assert unit.asked <= looks


def test_a_worker_that_does_not_join():
    wait = ready.wait_until_ready(None, ready.Watch(Unit(STARTING)), 0.1)
    assert wait.problem == "has not joined its head after 0.1 s"


def test_a_worker_that_dies_while_it_waits():
    wait = ready.wait_until_ready(None, ready.Watch(Unit(STARTING, state("failed", "failed", 0, "exit-code"))), 60)
    assert wait.problem.startswith("unit vllm@big.service ")


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(200, (), 0.1), "; something else answers at http://127.0.0.1:8001"),
        # It was asked nothing, and it has the port.
        (Reply(0, (), 0.1, "of vllm@b", stranger=True), "; something else answers at http://127.0.0.1:8001: of vllm@b"),
        (Reply(0, (), 0.1, "connection refused"), ""),
    ],
)
def test_who_has_the_port_of_a_unit_that_has_failed_is_named(reply, told):
    client = SimpleNamespace(url="http://127.0.0.1:8001", request=lambda *_given: reply)
    wait = ready.wait_until_ready(client, ready.Watch(Unit(STARTING, state("failed", "failed", 0, "exit-code"))), 60)
    assert wait.problem.startswith("unit vllm@big.service ") and wait.problem.partition("big.service")[2].endswith(told)
    assert ("something else" in wait.problem) == bool(told)


@pytest.mark.parametrize(
    ("states", "told"),
    [
        ([STARTING], "chat is still starting after 35 s."),
        ([RUNNING], "chat runs, and does not answer."),
        (
            [RUNNING, state("activating", "auto-restart", 0, "signal")],
            "chat has failed: signal; see `inference logs HOST chat`.",
        ),
        ([state("inactive", "dead")], "chat is not started; see `inference logs HOST chat`."),
    ],
)
def test_where_an_instance_stands_in_one_short_sentence(monkeypatch, states, told):
    monkeypatch.setattr(ready.time, "monotonic", lambda: 1035.0)
    watch = ready.Watch(Unit(*(replace(each, began=1000.0) for each in states)))
    watch.check()
    assert watch.in_short("chat") == told


@pytest.mark.parametrize("found", [STARTING, replace(state("inactive", "dead"), job=True, began=900.0)])
def test_an_instance_whose_start_has_not_begun_is_not_said_to_start(found):
    watch = ready.Watch(Unit(found))
    watch.check()
    assert watch.in_short("chat") == "chat waits for systemd to start it."
