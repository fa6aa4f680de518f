# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import Backend, GatewayError, decide

from tests.fakes.gateways import options, plan

SCALE = {"min": 1, "max": 2, "mode": "auto", "hosts": []}


def decided(*scales: Any, **more: Any) -> dict[str, Any]:
    """Return the plan of a gateway with one host for each scale; None is an instance without one."""
    backends = [
        Backend(
            f"gpu-{letter}",
            f"10.0.0.{number}",
            {"chat": plan(8000, instance="chat", **({"scale": scale} if scale else {}))},
        )
        for number, (letter, scale) in enumerate(zip("abcd", scales), 1)
    ]
    return decide("gw-a", backends, options(**more))


def test_without_scale_the_agent_has_nothing_to_do() -> None:
    assert decided(None, None)["scale"] == {}


def test_the_agent_knows_the_door_of_each_host() -> None:
    found = decided(SCALE, SCALE)["scale"]
    assert found["gateway"] == "gw-a"
    assert found["doors"] == {"gpu-a": "10.0.0.1:8471", "gpu-b": "10.0.0.2:8471"}
    chat = found["services"]["chat"]
    assert (chat["min"], chat["max"], chat["mode"]) == (1, 2, "auto")
    assert chat["replicas"]["gpu-b--chat"] == {
        "address": "10.0.0.2:8000", "host": "gpu-b", "instance": "chat",
        "places": 256, "resident": False, "fixed": False,
    }  # fmt: skip


def test_a_replica_on_a_host_that_hosts_does_not_name_always_serves() -> None:
    scale = {**SCALE, "hosts": ["gpu-a"]}
    found = decided(scale, scale)["scale"]
    assert list(found["doors"]) == ["gpu-a"]
    assert [each["fixed"] for each in found["services"]["chat"]["replicas"].values()] == [False, True]


@pytest.mark.parametrize(
    ("scales", "more", "message"),
    [
        ((SCALE, None), {}, "vllm_instances.chat.scale: its hosts have different ones (gpu-a: "),
        (
            # The difference stands behind what a message shows.
            [{**SCALE, "hosts": [f"a-host-with-a-long-name-{n}" for n in (*range(12), last)]} for last in (90, 91)],
            {},
            "vllm_instances.chat.scale: its hosts have different ones (gpu-a: ",
        ),
        (({**SCALE, "max": 3},) * 2, {}, "vllm_instances.chat.scale.max: found 3, and gpu-a, gpu-b have 2 replicas"),
        (
            ({**SCALE, "hosts": ["gpu-c"]},) * 2,
            {},
            "vllm_instances.chat.scale.hosts: gpu-c has no instance chat behind gw-a",
        ),
        ((SCALE,) * 2, {"min_available": 2}, "vllm_instances.chat.scale.min: found 1, and gateway_min_available is 2"),
        ((SCALE,) * 2, {"has_secret": False}, "vllm_instances.chat.scale: gateway_secret is empty"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(scales: Any, more: Any, message: str) -> None:
    with pytest.raises(GatewayError) as found:
        decided(*scales, **more)
    assert str(found.value).startswith(message)
    assert "\n" not in str(found.value)
