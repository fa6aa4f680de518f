# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instance is measured, and when it is refused."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import summarize_plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.choice import (
    ChoiceError,
    check_installed,
    chips_of,
    choose_instance,
)

from tests.fakes.benches import PLAN

GOOD = {"digest": "d", "plan": summarize_plan(PLAN)}
SLOT = {"installed": True, "digest": "d", "good": GOOD, "stale": False}


def test_the_only_instance_needs_no_name():
    assert choose_instance({"chat": PLAN}, "") == "chat" and choose_instance({"a": 1, "b": 2}, "b") == "b"


@pytest.mark.parametrize(
    ("plans", "name", "message"),
    [
        ({}, "", "this host has no instance"),
        (
            {"a": 1, "b": 2},
            "",
            r"this host has 2 instances \(a, b\); name one with -e bench_instance=NAME \(--instance NAME\)",
        ),
        ({"chat": 1}, "chta", "this host has no instance 'chta'; nearest: 'chat'"),
    ],
)
def test_a_wrong_or_missing_name_is_refused(plans, name, message):
    with pytest.raises(ChoiceError, match=message):
        choose_instance(plans, name)


def test_what_the_host_serves_is_what_was_planned():
    check_installed("chat", PLAN, SLOT)


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        (None, "instance chat is not installed on this host; run playbooks/site.yml first"),
        ({**SLOT, "installed": False}, "is not installed"),
        ({**SLOT, "good": None}, "is installed with files that were never verified"),
        ({**SLOT, "digest": "e"}, "is installed with files that were never verified"),
        ({**SLOT, "good": {**GOOD, "plan": {**GOOD["plan"], "args": {}}}}, r"than the inventory has \(args\); run"),
        ({**SLOT, "stale": True}, "runs with older files than those installed"),
    ],
)
def test_another_state_is_refused(slot, message):
    with pytest.raises(ChoiceError, match=message):
        check_installed("chat", PLAN, slot)


def test_the_chips_of_several_hosts_have_no_common_tool():
    assert chips_of(PLAN) == [0] and chips_of({**PLAN, "strategy": "multi_node_tp"}) == []


def test_the_vendors_tool_has_its_own_numbers_beside_other_chips():
    assert chips_of({**PLAN, "numbers": [2]}) == [2]
