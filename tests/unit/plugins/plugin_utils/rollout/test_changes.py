# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout would change on a host, in data and in words."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.slots.state import summarize_plan
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.changes import (
    changes_of,
    describe_changes,
    in_inventory,
    measurable,
    returns_of,
    spanning,
    states_before,
    to_measure,
    undone_of,
)

PLAN = {
    "instance": "chat",
    "release": "0.32.0",
    "vllm_version": "0.32.0",
    "model": "openai/gpt-oss-20b",
    "revision": "a" * 40,
    "image": None,
    "runtime": "venv",
    "args": {"max-num-seqs": 16},
    "env": {"VLLM_NO_USAGE_STATS": "1"},
}


def slot(digest="one", **plan):
    return {"digest": digest, "plan": summarize_plan({**PLAN, **plan}), "record": {}}


def test_an_instance_whose_files_are_as_wanted_does_not_change():
    assert changes_of({"chat": PLAN}, {"chat": {"good": slot()}}, {}) == {}


def test_what_differs_from_what_was_good_is_named_with_both_values():
    new = {**PLAN, "release": "0.33.0", "vllm_version": "0.33.0", "args": {"max-num-seqs": 32, "seed": 1}, "env": {}}
    found = changes_of({"chat": new}, {"chat": {"good": slot()}}, {"chat": ["/etc/vllm/chat.yaml"]})
    assert found["chat"]["args"] == {"max-num-seqs": [16, 32], "seed": [None, 1]}
    assert found["chat"]["env"] == {"VLLM_NO_USAGE_STATS": ["1", None]}
    assert found["chat"]["before"]["release"] == "0.32.0"
    assert describe_changes(found) == (
        "chat: release 0.32.0 -> 0.33.0, vllm_version 0.32.0 -> 0.33.0, max-num-seqs 16 -> 32, seed (none) -> 1, "
        "VLLM_NO_USAGE_STATS 1 -> (none)"
    )


def test_the_same_plan_in_other_files_is_told_by_the_files():
    found = changes_of({"chat": PLAN}, {"chat": {"good": slot()}}, {"chat": ["/etc/vllm/chat.secrets"]})
    assert describe_changes(found) == "chat: /etc/vllm/chat.secrets"


def test_an_instance_that_runs_with_older_files_is_started_anew():
    found = changes_of({"chat": PLAN}, {"chat": {"good": slot(), "stale": True}}, {})
    assert describe_changes(found) == "chat: started again"


def test_an_instance_of_which_nothing_was_kept_says_what_it_will_be():
    found = changes_of({"chat": PLAN}, {}, {"chat": ["/etc/vllm/chat.yaml"]})
    assert found["chat"]["before"] is None
    assert describe_changes(found) == "chat: openai/gpt-oss-20b by release 0.32.0 (what ran before is not known)"


def test_what_is_good_goes_back_to_what_was_before_it():
    slots = {"chat": {"digest": "two", "good": slot("two", revision="b" * 40), "previous": slot("one")}}
    found, problems = returns_of(slots)
    assert problems == []
    assert found["chat"]["to"] == "one"
    assert (found["chat"]["before"]["revision"], found["chat"]["after"]["revision"]) == ("b" * 40, "a" * 40)


def test_what_was_never_good_goes_back_to_what_was():
    slots = {"chat": {"digest": "three", "good": slot("two"), "previous": slot("one")}}
    assert returns_of(slots)[0]["chat"]["to"] == "two"


def test_where_nothing_was_kept_there_is_no_way_back():
    found, problems = returns_of({"chat": {"digest": "one", "good": slot("one"), "previous": None}})
    assert found == {}
    assert problems == ["chat: nothing to go back to: no earlier state of it was kept on this host"]


def test_long_values_do_not_make_long_lines():
    new = {**PLAN, "args": {"compilation-config": "x" * 500}}
    assert len(describe_changes(changes_of({"chat": new}, {"chat": {"good": slot()}}, {"chat": ["f"]}))) < 150


def test_what_an_interrupted_rollout_had_not_changed_yet_does_not_go_further_back():
    slots = {"chat": {"digest": "two", "good": slot("two"), "previous": slot("one"), "up": True}}
    assert returns_of(slots, in_turn=True) == ({}, [])


def test_what_was_interrupted_between_files_and_start_is_started():
    for state in ({"up": False}, {"up": True, "stale": True}):
        slots = {"chat": {"digest": "two", "good": slot("two"), "previous": slot("one"), **state}}
        assert returns_of(slots, in_turn=True)[0]["chat"]["to"] == "two"
        found, _problems = undone_of(slots | {"chat": {**slots["chat"], "slots": [slot("two")]}}, BROUGHT, in_turn=True)
        assert found["chat"]["to"] == "two"


# A rollout took chat from the state two to three.
BROUGHT = {"chat": {"before": "two", "after": "three"}}


def kept(installed, *digests):
    return {"digest": installed, "good": slot(installed), "slots": [slot(one) for one in digests], "up": True}


def test_an_undo_goes_to_the_state_before_the_rollout_and_takes_no_other_instance():
    slots = {"chat": kept("three", "one", "two", "three"), "embed": kept("e2", "e1", "e2")}
    found, problems = undone_of(slots, BROUGHT)
    assert problems == [] and {name: change["to"] for name, change in found.items()} == {"chat": "two"}


def test_an_undo_that_is_run_again_finds_nothing_left():
    assert undone_of({"chat": kept("two", "one", "two", "three")}, BROUGHT) == ({}, [])


def test_an_undo_does_not_touch_what_was_changed_since():
    found, problems = undone_of({"chat": kept("four", "two", "three", "four")}, BROUGHT)
    assert found == {} and problems[0].startswith("chat: it was changed since that rollout; to go back one state, name")
    assert undone_of({"chat": kept("four", "two", "three", "four")}, BROUGHT, in_turn=True)[0] == {}
    # A way back that was interrupted has left something of both.
    found, problems = undone_of({"chat": kept("half", "two", "three")}, BROUGHT, in_turn=True, half_back=True)
    assert found["chat"]["to"] == "two" and problems == []


def test_an_undo_of_a_turn_that_never_ended_goes_back_from_whatever_is_there():
    found, _problems = undone_of({"chat": kept("half", "two")}, {"chat": {"before": "two", "after": ""}})
    assert found["chat"]["to"] == "two"


def test_an_undo_whose_state_is_gone_says_so():
    found, problems = undone_of({"chat": kept("three", "three")}, BROUGHT)
    assert found == {} and "the state before that rollout is not kept on this host" in problems[0]


def test_what_an_interrupted_turn_left_running_is_no_baseline_and_not_kept():
    new = {"digest": "new", "good": slot("old"), "up": True}
    fresh = {"digest": "one", "good": None, "up": True}
    old = {"digest": "old", "good": slot("old"), "up": True}
    slots = {"new": new, "fresh": fresh, "old": old, "down": {**old, "up": False}, "stale": {**old, "stale": True}}
    assert measurable(slots, in_turn=False) == (["fresh", "old"], ["fresh"])
    assert measurable(slots, in_turn=True) == (["old"], [])


def test_states_before_are_the_good_ones_or_what_is_about_to_be_kept():
    slots = {"chat": {"digest": "new", "good": slot("old")}, "fresh": {"digest": "one", "good": None}, "none": {}}
    assert states_before(slots) == {"chat": "old", "fresh": "one"}


def test_instances_that_the_inventory_does_not_name_are_left_out():
    slots = {"chat": {}, "chat-2": {}, "old": {}, "old-2": {}}
    assert list(in_inventory(slots, {"chat": {}})) == ["chat", "chat-2"]
    assert in_inventory(slots, {}) == slots


def test_an_instance_that_spans_hosts_is_known_by_its_group():
    group = {"role": "head", "hosts": ["a", "b"], "rank": 0}
    plans = {"chat": {**PLAN, "group": group}, "small": {**PLAN, "strategy": "single_node_tp"}}
    assert spanning(plans, {}) == {"chat": {"role": "head", "hosts": ["a", "b"]}}
    # A rollback has no plans.
    installed = {"chat": {"group": {"role": "worker", "hosts": ["c", "a"]}}, "small": {"group": {}}, "old": {}}
    assert spanning({}, installed) == {"chat": {"role": "worker", "hosts": ["c", "a"]}}
    # A host that leaves the group stops with it.
    assert spanning(plans, installed) == {"chat": {"role": "head", "hosts": ["a", "b", "c"]}}


def test_what_has_figures_is_measured_only_when_the_baseline_is_now():
    slots = {"chat": {"good": {"record": {"tokens_per_second": 9}}}, "new": {"good": {"record": {}}}, "never": {}}
    assert to_measure(list(slots), slots, "now") == ["chat", "new", "never"]
    assert to_measure(list(slots), slots, "record") == ["new", "never"]
