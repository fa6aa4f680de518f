# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.removal import next_removal_step
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.states import (
    ABORT,
    CREATE,
    DONE,
    FAIL,
    MANAGE,
    PHASES,
    POWER_OFF,
    RENEW,
    STOP,
    WAIT,
    WIPE,
    Node,
    Progress,
)

from tests.unit.plugins.plugin_utils.provisioning.test_states import STATES

# What a run that begins in a state of Ironic does first, where it is not a new node in place of the one that is there.
FIRST = {
    "enroll": MANAGE, "verifying": WAIT, "manageable": STOP, "cleaning": WAIT, "clean wait": WAIT, "deploying": FAIL,
    "wait call-back": FAIL, "deleting": FAIL,
}  # fmt: skip


def step(state, now=0.0, wipe=True, power="power on", **progress):
    node = state if state is None or isinstance(state, Node) else Node(state, order="wipe1", power=power)
    return next_removal_step(node, Progress(**{"order": "wipe1", **progress}), now, PHASES, wipe)


@pytest.mark.parametrize("state", STATES)
def test_a_run_can_begin_in_every_state(state):
    assert step(state).do == FIRST.get(state, RENEW)


def test_a_server_that_ironic_has_forgotten_is_created():
    assert step(None).do == CREATE


@pytest.mark.parametrize("state", ["cleaning", "clean wait"])
@pytest.mark.parametrize(("known", "order"), [("", "wipe1"), ("wipe1", "other"), ("", "")])
def test_a_wipe_of_somebody_else_is_left_alone(state, known, order):
    found = step(Node(state, order=order), order=known)
    assert (found.do, "does not know" in found.reason) == (FAIL, True)


def test_a_system_is_stopped_before_its_disks_are_wiped_and_is_not_waited_for_for_ever():
    assert step("manageable").do == STOP
    assert step("manageable", stops=1).do == WAIT
    assert step("manageable", stops=1, power="power off").do == WIPE
    assert step(Node("manageable", last_error="did not stop", power="power on"), stops=1).do == WIPE


@pytest.mark.parametrize(
    ("wipe", "power", "progress", "expected"),
    [
        (False, "power off", {}, DONE),
        (False, "power on", {}, STOP),
        (True, "power off", {}, WIPE),
        (True, "power off", {"wipes": 1}, DONE),
        (True, "power on", {"wipes": 1}, POWER_OFF),
        (True, "", {"wipes": 1}, POWER_OFF),
    ],
)
def test_a_host_is_done_when_its_disks_are_wiped_and_it_is_switched_off(wipe, power, progress, expected):
    assert step("manageable", wipe=wipe, power=power, **progress).do == expected


def test_a_failed_wipe_of_this_run_fails_and_one_of_an_earlier_run_is_repeated():
    failed = Node("clean failed", last_error="nothing was wiped", maintenance=True)
    assert step(failed, wipes=1).reason == "Ironic could not wipe the disks: nothing was wiped"
    assert step(failed).do == RENEW
    assert step(failed, given_up="the server lost its power").reason == "the server lost its power"


def test_a_node_that_somebody_has_set_aside_is_not_touched():
    assert step(Node("manageable", maintenance=True)).do == FAIL


def test_a_wipe_without_power_or_end_is_aborted():
    cut = step("clean wait", now=100.0, off_since=30.0, phase="wipe")
    assert (cut.do, cut.reason) == (ABORT, "the server lost its power in the phase wipe")
    late = step("clean wait", now=1801.0, phase="wipe")
    assert (late.do, late.reason) == (ABORT, "the phase wipe has taken longer than 1800 s")
    # The conductor works at a cleaning node; it does not accept an abort.
    assert step("cleaning", now=1801.0, phase="wipe").do == FAIL
    # Ironic has nothing to abort where the order itself is late.
    assert step("manageable", now=1800, power="power off", phase="wipe").do == FAIL
