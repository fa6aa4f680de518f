# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.answers import describe_silent
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.chips import Host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.lines import Line, line_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet_page.versions import with_versions

OLD = {"digest": "a1", "plan": {"release": "0.32.0"}}
NEW = {"digest": "b2", "plan": {"vllm_version": "0.33.0"}}


def entry(digest="b2", good=None, **more):
    return {"installed": True, "digest": digest, "good": good or NEW, "slots": [OLD, NEW], "stale": False, **more}


def shown(state="seen", **instances):
    line = Line("gpu-1", "", "", (("h200", 8),), state, planned=(("chat", "0.33.0"),))
    (found,) = with_versions([line], {"gpu-1": {"instances": instances}})
    return found.state, found.why, found.facts


def test_a_host_as_planned_shows_its_releases():
    found = shown(**{"chat": entry(), "chat-2": entry()})
    assert found == ("seen", "", ("chat has vLLM 0.33.0", "chat-2 has vLLM 0.33.0"))


@pytest.mark.parametrize(
    ("instances", "why"),
    [
        ({"chat": entry("a1", OLD)}, "chat: vLLM 0.32.0 is installed, 0.33.0 is planned"),
        (
            {"chat": entry(), "chat-2": entry("a1", OLD)}, "chat-2: vLLM 0.32.0 is installed, 0.33.0 is planned"
        ),
        ({"chat": entry("c3")}, "chat: its files differ from its last good state"),
        ({"chat": entry(stale=True)}, "chat: it runs with older files than those installed"),
        ({"chat": {"installed": False}}, "chat: is not installed"),
        ({}, "chat: is not installed"),
    ],
)  # fmt: skip
def test_what_differs_from_the_plan_is_named(instances, why):
    assert shown(**instances)[:2] == ("drifted", why)


def test_a_worse_state_stays_with_both_reasons():
    state, why, _facts = shown("conflict", chat=entry("c3"))
    assert state == "conflict" and why.endswith("chat: its files differ from its last good state")


def test_a_host_that_was_not_read_stays_as_it_is_and_is_named():
    line = Line("gpu-1", "", "", (("h200", 8),), "seen", planned=(("chat", "0.33.0"),))
    assert with_versions([line], {"gpu-1": {"msg": "timed\nout"}}) == [line] == with_versions([line], {})
    assert describe_silent({"gpu-1": {"msg": "timed\nout"}, "gpu-2": {"instances": {}}, "gpu-3": {}}, "instances") == [
        "gpu-1 was not read: timed out", "gpu-3 was not read: no answer",
    ]  # fmt: skip


def test_planned_releases_are_facts_of_a_host():
    instances = {"chat": {}, "code": {"release": "0.32.0"}, "vision": {"release": "{{ newest }}"}, "odd": None}
    found = line_of(Host("a", [], {"vllm_instances": instances, "vllm_release": "0.33.0"}), {})
    assert found.planned == (("chat", "0.33.0"), ("code", "0.32.0"), ("odd", "0.33.0"), ("vision", ""))
    assert found.facts == (
        "chat: vLLM 0.33.0 planned", "code: vLLM 0.32.0 planned", "odd: vLLM 0.33.0 planned",
    )  # fmt: skip
    one = line_of(Host("a", [], {"vllm_instances": {"a": {}, "b": {}}, "vllm_release": "0.33.0"}), {})
    assert one.facts == ("vLLM 0.33.0 planned",)
