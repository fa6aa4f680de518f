# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a worker, which answers nobody; tests/unit/plugins/modules/test_endpoint.py waits for servers."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint import ready
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


def test_a_worker_that_does_not_join():
    wait = ready.wait_until_ready(None, ready.Watch(Unit(STARTING)), 0.1)
    assert wait.problem == "has not joined its head after 0.1 s"


def test_a_worker_that_dies_while_it_waits():
    wait = ready.wait_until_ready(None, ready.Watch(Unit(STARTING, state("failed", "failed", 0, "exit-code"))), 60)
    assert wait.problem.startswith("unit vllm@big.service ")
