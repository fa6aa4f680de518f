# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import summarize_plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.ready import (
    check_drained,
    check_interrupted,
    check_lengths,
    return_states,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.variants import TuneError

from tests.fakes.benches import CHAT, PLAN

PLANS = {"chat": PLAN, "chat-2": PLAN}
SLOT = {
    "installed": True,
    "digest": "d",
    "good": {"digest": "d", "plan": summarize_plan(PLAN)},
    "stale": False,
    "up": True,
    "slots": [{"digest": "d"}],
}


def slots(turn=None, **change):
    return {"instances": {"chat": SLOT, "chat-2": {**SLOT, **change}}, "turn": turn}


def test_every_replica_goes_back_to_its_good_state():
    assert return_states(PLANS, slots(), {}, "me") == {"chat": "d", "chat-2": "d"}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (slots(turn={"id": "r1"}), "a rollout .r1. is updating this host"),
        (slots(up=False), "instance chat-2 does not run"),
        (slots(digest="e"), "instance chat-2 is installed with files that were never verified"),
        (slots(stale=True), "instance chat-2 runs with older files"),
        ({"instances": {"chat": SLOT}, "turn": None}, "instance chat-2 is not installed"),
    ],
)
def test_an_instance_that_cannot_go_back(found, message):
    with pytest.raises(TuneError, match=message):
        return_states(PLANS, found, {}, "me")


def test_after_an_interrupted_tune_its_lock_says_where_to_go_back_to():
    lock = {"id": "me", "states": {"chat": "d", "chat-2": "d"}}
    assert return_states(PLANS, slots(digest="of a variant"), lock, "me") == lock["states"]
    with pytest.raises(TuneError, match="the state x, which it had before the interrupted tune, is not kept any more"):
        return_states(PLANS, slots(), {"id": "me", "states": {"chat": "x"}}, "me")


def test_a_lock_of_another_tune_says_nothing():
    assert return_states(PLANS, slots(), {"id": "other", "states": {"chat": "x"}}, "me") == {"chat": "d", "chat-2": "d"}


def gateway(**servers):
    return {"item": "gw", "servers": {name.replace("__", "--"): {"state": state} for name, state in servers.items()}}


def test_a_host_that_gateways_send_requests_to_is_refused():
    check_drained("gpu", ["chat"], [gateway(gpu__chat="drain", gpu__other="ready", gpu2__chat="ready")])
    check_drained("gpu", ["chat"], [])
    with pytest.raises(TuneError, match=r"the gateway gw sends requests to gpu--chat; drain the host first: .*-l gpu"):
        check_drained("gpu", ["chat"], [gateway(gpu__chat="drain"), gateway(gpu__chat="ready")])


def test_only_an_interrupted_tune_can_be_stopped():
    check_interrupted({"id": "me"}, "me")
    for lock in ({}, {"id": "other"}):
        with pytest.raises(
            TuneError, match=r"tune_stop: found no interrupted tune .* results of me; the instance stays"
        ):
            check_interrupted(lock, "me")


def test_a_workload_must_fit_every_variant():
    check_lengths({"current": PLAN, "exact": {**PLAN, "args": {"max-model-len": 1536}}}, CHAT)
    short = {**PLAN, "args": {"max-model-len": 1535}}
    with pytest.raises(
        TuneError, match=r"chat has requests of 1536 tokens, but the variant short has max-model-len 1535"
    ):
        check_lengths({"current": PLAN, "short": short}, CHAT)
