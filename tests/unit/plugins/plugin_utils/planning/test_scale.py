# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.instances import check_instance
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.scale import (
    check_scale_hosts,
    door_of,
    scale_of,
)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (True, "vllm_instances.chat.scale: found true, expected a mapping such as {min: 1, max: 4}"),
        ({"max": 2, "maxx": 3}, "vllm_instances.chat.scale: unknown key 'maxx'; nearest: 'max'"),
        ({"max": 2, True: ["gpu-a"]}, "vllm_instances.chat.scale: unknown key true; use 'hosts'"),
        ({"max": 2, "true": ["gpu-a"]}, "vllm_instances.chat.scale: unknown key 'true'; use 'hosts'"),
        ({"min": 1}, "vllm_instances.chat.scale.max: "),
        ({"max": "4"}, "vllm_instances.chat.scale.max: "),
        ({"max": 0}, "vllm_instances.chat.scale.max: "),
        ({"min": -1, "max": 2}, "vllm_instances.chat.scale.min: "),
        ({"min": True, "max": 2}, "vllm_instances.chat.scale.min: "),
        ({"min": 3, "max": 2}, "vllm_instances.chat.scale.min: found 3, which is more than max (2)"),
        ({"max": 2, "mode": "shadw"}, "vllm_instances.chat.scale.mode: found 'shadw'; nearest: 'shadow'"),
        ({"max": 2, "mode": ["auto"]}, "vllm_instances.chat.scale.mode: found "),
        ({"max": 2, "hosts": []}, "vllm_instances.chat.scale.hosts: found [], expected a list of hosts; leave it out"),
        ({"max": 2, "hosts": None}, "vllm_instances.chat.scale.hosts: found nothing, expected a list of hosts"),
        ({"max": 2, "hosts": "gpu-a"}, "vllm_instances.chat.scale.hosts: found 'gpu-a', expected a list of hosts"),
    ],
)
def test_a_scale_that_cannot_be_is_refused_in_one_sentence(scale: Any, message: str) -> None:
    with pytest.raises(PlanError, match=re.escape(message)) as found:
        check_instance("chat", {"recipe": "openai/gpt-oss-20b", "scale": scale})
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("key", ["nodes", "preload"])
def test_what_cannot_start_and_stop_by_itself_has_no_scale(key: str) -> None:
    requested = {"recipe": "openai/gpt-oss-20b", "scale": {"max": 2}, key: ["a"] if key == "nodes" else True}
    with pytest.raises(PlanError, match=f"vllm_instances.chat.scale: found together with {key}"):
        check_instance("chat", requested)


def test_a_host_that_the_inventory_does_not_have_is_refused() -> None:
    instances = {"chat": {"scale": {"max": 2, "hosts": ["gpu-a", "gpu-c"]}}}
    with pytest.raises(PlanError, match=r"vllm_instances.chat.scale.hosts: the inventory has no host 'gpu-c'; .*gpu-"):
        check_scale_hosts(instances, ["gpu-a", "gpu-b"])
    check_scale_hosts(instances, ["gpu-a", "gpu-c"])
    for odd in (None, [], {"chat": None}, {"chat": {"scale": 1}}, {"chat": {"scale": {"hosts": [1, None]}}}):
        check_scale_hosts(odd, [])


def test_a_plan_without_scale_has_none_and_one_with_it_has_all_keys() -> None:
    assert scale_of({}) is None
    assert scale_of({"scale": {"max": 4}}) == {"min": 1, "max": 4, "mode": "auto", "hosts": []}


def test_the_door_of_a_host_names_the_instances_that_may_stop_there() -> None:
    def plan(host: str, **more: Any) -> Any:
        return {"listen": {"host": host, "port": 8000}, **more}

    scale = {"min": 1, "max": 2, "mode": "auto", "hosts": ["gpu-a"]}
    plans = {
        "chat": plan("10.0.0.5", scale=scale),
        "small": plan("10.0.0.5", scale={**scale, "hosts": []}, residents="gpu0"),
        "other": plan("127.0.0.1"),
    }
    assert door_of("gpu-a", plans) == {
        "host": "gpu-a",
        "listen": "10.0.0.5",
        "instances": {"chat": {"resident": False}, "small": {"resident": True}},
    }
    # On a host that `hosts` does not name the replica always serves.
    assert door_of("gpu-b", {"chat": plans["chat"]}) == {}
    assert door_of("gpu-a", {"other": plans["other"]}) == {}
    assert door_of("gpu-a", {"chat": plan("*", scale=scale)})["listen"] == "0.0.0.0"
    apart = {"chat": plan("10.0.0.5", scale=scale), "more": plan("127.0.0.1", scale=scale)}
    assert door_of("gpu-a", apart)["listen"] == "0.0.0.0"
