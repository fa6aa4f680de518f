# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.states import (
    ABORT,
    CHECK,
    CREATE,
    DESCRIBE_AND_DEPLOY,
    FAIL,
    MANAGE,
    PHASES,
    PROVIDE,
    RENEW,
    UNDEPLOY,
    WAIT,
    DeadlineError,
    Node,
    Progress,
    next_step,
    read_deadlines,
)

# Every state of a node in Ironic 39 (ironic/common/states.py), and what a run that begins in it does first.
STATES = {
    "enroll": MANAGE,
    "verifying": WAIT,
    "manageable": PROVIDE,
    "available": DESCRIBE_AND_DEPLOY,
    "deploy failed": DESCRIBE_AND_DEPLOY,
    "deploying": WAIT,
    "wait call-back": WAIT,
    "active": CHECK,
    "deleting": WAIT,
    "deploy hold": FAIL,
    "deleted": FAIL,
    "cleaning": FAIL,
    "clean wait": FAIL,
    "clean failed": FAIL,
    "clean hold": FAIL,
    "error": FAIL,
    "rebuild": FAIL,
    "inspecting": FAIL,
    "inspect wait": FAIL,
    "inspect failed": FAIL,
    "adopting": FAIL,
    "adopt failed": FAIL,
    "rescue": FAIL,
    "rescuing": FAIL,
    "rescue wait": FAIL,
    "rescue failed": FAIL,
    "unrescuing": FAIL,
    "unrescue failed": FAIL,
    "servicing": FAIL,
    "service wait": FAIL,
    "service failed": FAIL,
    "service hold": FAIL,
    "no such state": FAIL,
    "": FAIL,
}


def step(state, now=0.0, deadlines=None, **progress):
    node = state if state is None or isinstance(state, Node) else Node(state, order="order1")
    return next_step(node, Progress(**{"order": "order1", **progress}), now, PHASES if deadlines is None else deadlines)


@pytest.mark.parametrize("state", STATES)
def test_a_run_can_begin_in_every_state(state):
    found = step(state)
    assert found.do == STATES[state]
    assert found.reason if found.do == FAIL else not found.reason


def test_a_server_that_ironic_does_not_know_is_created():
    assert step(None).do == CREATE


def test_a_server_that_cannot_be_managed_is_asked_once_because_bmcs_lock_accounts():
    failed = step(Node("enroll", last_error="401 Unauthorized"), managed=1)
    assert (failed.do, failed.reason) == (FAIL, "Ironic cannot manage the server: 401 Unauthorized")


def test_a_disk_is_written_once_in_a_run_and_again_only_after_a_power_cut():
    node = Node("deploy failed", last_error="no such medium", order="order1")
    assert step(node).do == DESCRIBE_AND_DEPLOY
    assert step(node, deploys=1).do == FAIL
    assert "no such medium" in step(node, deploys=1).reason
    assert step(node, deploys=1, cuts=1).do == DESCRIBE_AND_DEPLOY
    assert step(node, deploys=2, cuts=1).do == FAIL
    assert step(node, deploys=2, cuts=2).do == FAIL


def test_a_server_without_power_for_a_minute_is_aborted_as_ironic_does_not_look():
    node = Node("wait call-back", step="write_image", order="order1")
    assert step(node, now=59, off_since=0).do == WAIT
    cut = step(node, now=60, off_since=0)
    assert (cut.do, cut.phase, cut.cut) == (ABORT, "write", True)
    # The conductor works at a deploying node; it does not accept an abort.
    assert step(Node("deploying", step="write_image", order="order1"), now=60, off_since=0).do == WAIT


@pytest.mark.parametrize("state", ["enroll", "verifying", "available", "deploying", "wait call-back"])
def test_a_bmc_that_is_silent_for_a_minute_fails(state):
    assert step(state, now=59, silent_since=0).do != FAIL
    failed = step(state, now=60, silent_since=0)
    assert (failed.do, failed.reason) == (FAIL, "the BMC has not answered for 60 s")


def test_a_silent_bmc_does_not_matter_once_the_system_boots():
    assert step("active", now=60, silent_since=0).do == CHECK


@pytest.mark.parametrize(
    ("node", "phase", "do"),
    [
        (Node("verifying"), "enroll", FAIL),
        (Node("manageable"), "prepare", FAIL),
        (Node("deploying", order="order1"), "order", FAIL),
        (Node("wait call-back", order="order1"), "ramdisk", ABORT),
        # The conductor works at these, and takes no abort.
        (Node("deploying", step="deploy", order="order1"), "ramdisk", FAIL),
        (Node("deploying", step="write_image", order="order1"), "write", FAIL),
        (Node("wait call-back", step="write_image", order="order1"), "write", ABORT),
        (Node("active", order="order1"), "boot", FAIL),
        (Node("deleting"), "erase", FAIL),
    ],
)  # fmt: skip
def test_each_phase_has_its_own_deadline(node, phase, do):
    deadlines = read_deadlines({phase: 10})
    assert step(node, now=9, phase=phase, deadlines=deadlines).do not in (FAIL, ABORT)
    late = step(node, now=10, phase=phase, deadlines=deadlines)
    assert (late.do, late.phase) == (do, phase)
    assert late.reason == f"the phase {phase} has taken longer than 10 s"
    # A phase that has just begun has all its time.
    assert step(node, now=10, phase="other", deadlines=deadlines).do not in (FAIL, ABORT)


def test_what_was_given_up_fails_once_ironic_has_aborted():
    failed = step("deploy failed", given_up="the phase ramdisk has taken longer than 10 s", phase="ramdisk")
    assert (failed.do, failed.phase, failed.reason) == (FAIL, "ramdisk", "the phase ramdisk has taken longer than 10 s")


@pytest.mark.parametrize("state", ["deploying", "wait call-back", "active"])
def test_the_order_of_another_controller_is_neither_followed_nor_disturbed(state):
    for found in (step(Node(state, order="other")), step(Node(state, order=""), order="")):
        assert found.do == FAIL
        assert "record does not know" in found.reason


def test_an_order_from_before_the_inventory_changed_is_not_followed():
    assert "before the inventory changed" in step("wait call-back", expected=False).reason


def test_a_written_disk_is_written_again_only_when_it_is_released_and_once_in_a_run():
    node = Node("active", order="order1")
    assert step(node, released=False).do == CHECK
    # "" is the order of a host whose record is complete: nothing of it is under way.
    assert step(node, released=True, order="").do == UNDEPLOY
    assert step(node, released=True, order="", erased=True).do == FAIL
    assert step(node, released=True, deploys=1).do == CHECK


def test_maintenance_is_left_to_people():
    failed = step(Node("available", maintenance=True, last_error="power unknown"))
    assert failed.do == FAIL
    assert "maintenance: power unknown" in failed.reason


def test_a_node_that_a_run_has_begun_to_forget_is_forgotten():
    aside = {"maintenance": True, "maintenance_reason": "handed over", "extra": {"order": "order1"}}
    for state, expected in STATES.items():
        node = Node.from_dict({"provision_state": state, **aside})
        assert step(node).do == (CHECK if expected == CHECK else RENEW)
    assert step(Node.from_dict({**aside, "provision_state": "active", "extra": {"order": "other"}})).do == RENEW
    assert step(Node.from_dict({**aside, "provision_state": "active", "maintenance_reason": "a fan"})).do == FAIL


def test_progress_notes_the_seconds_of_each_phase():
    progress = Progress(since=5.0)
    assert progress.enter("enroll", 5.0)
    assert not progress.enter("enroll", 9.0)
    assert progress.enter("write", 9.0)
    assert progress.enter("enroll", 10.5)
    assert progress.enter("boot", 12.0)
    assert progress.seconds == {"enroll": 5.5, "write": 1.5}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"wirte": 10}, "provision_deadlines: there is no phase 'wirte'; nearest: 'write'"),
        ({"write": "10"}, "provision_deadlines.write: found '10', expected seconds from 1 to 86400"),
        ({"write": 0}, "provision_deadlines.write: found 0"),
        ({"write": True}, "provision_deadlines.write: found true"),
    ],
)
def test_a_wrong_deadline_is_refused(own, said):
    with pytest.raises(DeadlineError) as error:
        read_deadlines(own)
    assert str(error.value).startswith(said)


def test_a_node_of_unexpected_kinds_is_read_as_empty():
    assert Node.from_dict({"provision_state": 7, "deploy_step": [], "extra": "x", "maintenance": "yes"}) == Node("")
    answer = {
        "provision_state": "active",
        "deploy_step": {"step": "write_image"},
        "extra": {"order": "a"},
        "last_error": None,
    }
    assert Node.from_dict(answer) == Node("active", step="write_image", order="a")


def test_the_words_of_the_bmc_at_the_end_of_a_long_error_are_kept():
    error = "Virtual media mount failed for node " + "x" * 1000 + " the remote image cannot be mounted"
    reason = step(Node("error", last_error=error)).reason
    assert ": Virtual media mount failed" in reason
    assert "the remote image cannot be mounted; nothing is done about it" in reason
    assert len(reason) < 700


def test_control_characters_of_an_error_are_escaped():
    assert "\x1b" not in step(Node("error", last_error="\x1b[2Jgone")).reason
