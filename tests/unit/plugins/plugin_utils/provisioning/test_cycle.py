# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.cycle import REST, next_cycle_step
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.states import PHASES, Node, Progress


def step(state, power="power on", now=0.0, error="", maintenance=False, **progress):
    node = Node(state, error, maintenance, power=power) if state else None
    found = next_cycle_step(node, Progress(**progress), now, PHASES)
    return found.do, found.phase


@pytest.mark.parametrize("state", ["manageable", "available", "active"])
def test_a_server_is_stopped_rests_is_started_and_answers(state):
    assert step(state) == ("stop", "stop")
    assert step(state, phase="stop", stops=1) == ("wait", "stop")
    assert step(state, "power off", phase="stop", stops=1) == ("wait", "off")
    assert step(state, "power off", now=REST - 1, phase="off", stops=1) == ("wait", "off")
    assert step(state, "power off", now=REST, phase="off", stops=1) == ("power on", "power_on")
    assert step(state, "power off", phase="power_on", stops=1, starts=1) == ("power on", "power_on")
    assert step(state, phase="power_on", stops=1, starts=1) == ("check", "boot")


def test_a_system_that_does_not_stop_loses_its_power():
    assert step("manageable", error="the system did not stop", phase="stop", stops=1) == ("power off", "power_off")


def test_a_server_that_an_earlier_run_has_switched_off_is_started():
    assert step("", "power off") == ("create", "enroll")
    assert step("enroll", "power off") == ("manage", "enroll")
    assert step("manageable", "power off", phase="enroll", managed=1) == ("wait", "off")


@pytest.mark.parametrize("state", ["deploying", "wait call-back", "cleaning", "clean wait", "deploy failed"])
def test_a_server_that_ironic_works_at_is_left_alone(state):
    assert step(state) == ("fail", "enroll")


def test_each_phase_ends_with_its_deadline():
    assert step("manageable", now=PHASES["boot"], phase="boot", starts=1) == ("fail", "boot")
    assert step("manageable", "power off", now=PHASES["power_on"], phase="power_on", starts=1) == ("fail", "power_on")
    assert step("active", maintenance=True) == ("fail", "enroll")
