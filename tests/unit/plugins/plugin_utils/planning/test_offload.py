# SPDX-License-Identifier: GPL-3.0-or-later
"""The KV cache in the memory of the host, after vLLM 0.33.0's v1/kv_offload/cpu and its connector for several tiers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.offload import (
    cache_gib,
    check_offload,
    shm_size,
)

from tests.fakes.plans import H200

MODEL = {"recipe": "openai/gpt-oss-20b"}


def plans(model="h100", count=8, memory_gib=2000, **more):
    facts = {"cpu": {"memory_mib": memory_gib * 1024 + 77}} if memory_gib else {}
    host = declared_accelerator(load_catalogue(), model, count, facts=facts)
    return plan_host("a", host, {**SITE, "release": "", "instances": {"chat": {**MODEL, **more}}})


def plan(**more):
    return plans(**more)["chat"]


def explained(found):
    return next(row["because"] for row in found["explain"] if row["key"] == "kv-offloading-size")


def test_auto_is_the_share_of_the_instance_s_chips():
    found = plans(kv_cache={"host_gib": "auto"}, args={"tensor-parallel-size": 2})
    assert {each["args"]["kv-offloading-size"] for each in found.values()} == {200} and len(found) == 4
    assert explained(found["chat"]) == (
        "40% of the host's 2000 GiB are for the KV cache of all its chips, and the instance has 2 of 8"
    )
    # vLLM keeps it in /dev/shm, beside what its processes exchange.
    assert found["chat"]["container"]["shm_size"] == "216g"


def test_engines_of_data_parallelism_have_their_parts():
    found = plan(kv_cache={"host_gib": "auto"}, args={"data-parallel-size": 8, "tensor-parallel-size": 1})
    assert found["args"]["kv-offloading-size"] == 100 and "each of the 8 engines" in explained(found)
    assert found["container"]["shm_size"] == "816g"


@pytest.mark.parametrize(("sizes", "engines"), [((16, 8), 8), ((2, 1), 1), ((8, None), 8)])
def test_of_an_instance_over_several_hosts_each_counts_its_own_engines(sizes, engines):
    args = dict(zip(("data-parallel-size", "data-parallel-size-local"), sizes))
    args = {key: value for key, value in {**args, "kv-offloading-size": 150}.items() if value}
    assert cache_gib(args, 8) == 150 * engines
    assert shm_size(args, 8) == f"{16 + 150 * engines}g"


def test_a_number_is_taken_as_it_is():
    found = plan(kv_cache={"host_gib": 12.5}, replicas=1, memory_gib=None)
    assert found["args"]["kv-offloading-size"] == 12.5 and "as the site says" in explained(found)


def test_the_flag_alone_makes_room_too():
    assert plan(args={"kv-offloading-size": 64})["container"]["shm_size"] == "80g"
    assert plan()["container"]["shm_size"] == "16g"


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"memory_gib": None}, "the memory of the host is not known here; run discover.yml"),
        ({"memory_gib": 1}, "0 GiB are less than 1 GiB for each engine"),
        ({"model": "ascend_a3", "count": 16}, "vLLM copies no KV cache of ascend_a3 to the host"),
        ({"model": "cpu", "count": 1}, "vLLM copies no KV cache of cpu to the host"),
        ({"release": "0.11.0"}, "vLLM 0.11.0 has no --kv-offloading-size"),
        ({"residents": "x"}, "keeps its weights there while it sleeps"),
        ({"args": {"kv-offloading-size": 1}}, "args set kv-offloading-size too"),
        ({"args": {"kv-transfer-config": {"kv_connector": "x", "kv_role": "kv_both"}}}, "would replace"),
    ],
)
def test_where_nothing_can_be_kept_there_it_is_refused(more, part):
    with pytest.raises(PlanError) as caught:
        plan(kv_cache={"host_gib": "auto"}, **more)
    assert part in str(caught.value) and str(caught.value).startswith("vllm_instances.chat.kv_cache")


@pytest.mark.parametrize(
    ("found", "part"),
    [
        ("auto", "kv_cache: found 'auto', expected a mapping"),
        ({}, "kv_cache.host_gib: found nothing"),
        ({"host_gb": 1}, "unknown key 'host_gb'; nearest: 'host_gib'"),
        ({"host_gib": 0}, "host_gib: found 0, expected auto or a number"),
        ({"host_gib": True}, "host_gib: found true"),
        ({"host_gib": "64"}, "host_gib: found '64'"),
        ({"host_gib": float("inf")}, "host_gib: found"),
    ],
)
def test_a_malformed_kv_cache_is_answered(found, part):
    with pytest.raises(PlanError) as caught:
        plan(kv_cache=found)
    assert part in str(caught.value)


def test_more_than_the_host_has_is_refused_by_the_plan_of_a_host():
    """plan_host once removed the memory of the host wherever no instance shared its chips."""
    with pytest.raises(PlanError, match="need 800 GiB of the host's memory"):
        plans(memory_gib=500, args={"kv-offloading-size": 100})


@pytest.mark.parametrize(
    ("args", "chips", "gib"),
    [
        ({}, 8, 0),
        ({"kv-offloading-size": 10}, 8, 10),
        ({"kv-offloading-size": 10, "data-parallel-size": 4}, 8, 40),
        ({"kv-transfer-config": {"kv_connector_extra_config": {"cpu_bytes_to_use": 2**30}}}, 2, 1),
        ({"kv-transfer-config": '{"kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 1073741824}}'}, 2, 2),
        ({"kv-transfer-config": "x"}, 2, 0),
    ],
)
def test_what_engines_keep_there_is_counted(args, chips, gib):
    assert cache_gib(args, chips) == gib and shm_size(args, chips) == f"{16 + gib}g"


@pytest.mark.parametrize(
    ("args", "memory", "message"),
    [
        ({"kv-offloading-size": 64}, 200, "need 256 GiB of the host's memory (a 128 GiB, b 128 GiB), which has 200.0"),
        ({"cpu-offload-gb": 20}, 100, "need 160 GiB of the host's memory (a 80 GiB, b 80 GiB), which has 100.0"),
        ({"kv-offloading-size": -64}, 300, "vllm_instances.a.args.kv-offloading-size: found -128, expected 0 or more"),
        ({"cpu-offload-gb": -1}, None, "vllm_instances.a.args.cpu-offload-gb: found -1, expected 0 or more"),
        ({"swap-space": 30}, 200, "swap-space need 240 GiB of the host's memory (a 120 GiB, b 120 GiB)"),
        (
            {"mm-processor-cache-gb": 10, "api-server-count": 4, "data-parallel-size": 2},
            100,
            "mm-processor-cache-gb need 120 GiB of the host's memory (a 60 GiB, b 60 GiB), which has 100.0 GiB",
        ),
        ({"mm-processor-cache-gb": 10}, 40, None),
        ({"kv-offloading-size": 64}, 300, None),
        ({"kv-offloading-size": 64}, None, None),
        ({}, 1, None),
    ],
)
def test_what_is_kept_in_the_host_s_memory_has_to_fit(args, memory, message):
    host = replace(H200, host_memory_mib=memory and memory * 1024)
    own = {name: {key: value * (2 if key.startswith("kv") else 1) for key, value in args.items()} for name in "ab"}
    if message is None:
        check_offload(own, {"a": 4, "b": 4}, host)
        return
    with pytest.raises(PlanError) as caught:
        check_offload(own, {"a": 4, "b": 4}, host)
    assert message in str(caught.value)


def test_connectors_that_are_joined_are_counted_too():
    inner = {
        "kv_connector": "SimpleCPUOffloadConnector",
        "kv_connector_extra_config": {"cpu_bytes_to_use_per_rank": 2**33},
    }
    joined = {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": ["x", {}, inner, inner]}}
    assert cache_gib({"kv-transfer-config": joined}, 4) == 64


def test_a_cache_of_pictures_that_processes_share_is_in_dev_shm():
    args = {"mm-processor-cache-gb": 40}
    assert shm_size(args, 4) == "16g"
    assert shm_size({**args, "mm-processor-cache-type": "shm"}, 4) == "56g"
