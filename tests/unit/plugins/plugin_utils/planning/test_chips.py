# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.chips import (
    Demand,
    allot,
    check_host_memory,
    check_parts,
    check_shares,
    estimated_weights_gib,
    fit_problem,
    required_gib,
    unused_chips,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

GIB = 1024**3
H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, 141 * 1024)
A3 = Accelerator("ascend_a3", "cann", "ascend_a3", "ascend", 16, 64 * 1024, devices_per_card=2)
CPU = Accelerator("cpu", "cpu", "cpu", "cpu", 1, 8 * 1024)


@pytest.mark.parametrize(
    ("demands", "expected"),
    [
        ([Demand("chat", 2)], {"chat": [(0, 1), (2, 3), (4, 5), (6, 7)]}),
        ([Demand("chat", 8)], {"chat": [(0, 1, 2, 3, 4, 5, 6, 7)]}),
        ([Demand("chat", 3)], {"chat": [(0, 1, 2), (3, 4, 5)]}),
        ([Demand("chat", 2, replicas=2)], {"chat": [(0, 1), (2, 3)]}),
        # Those that may fill the host get one replica each in turn.
        ([Demand("a", 2), Demand("b", 2)], {"a": [(0, 1), (2, 3)], "b": [(4, 5), (6, 7)]}),
        ([Demand("b", 4), Demand("a", 2)], {"a": [(0, 1), (2, 3)], "b": [(4, 5, 6, 7)]}),
        ([Demand("a", 4, replicas=1), Demand("b", 2)], {"a": [(0, 1, 2, 3)], "b": [(4, 5), (6, 7)]}),
        # Pinned ones come first, and nobody else gets their chips.
        ([Demand("a", 2), Demand("b", 2, pinned=(0, 1))], {"a": [(2, 3), (4, 5), (6, 7)], "b": [(0, 1)]}),
        ([Demand("a", 4), Demand("b", 1, pinned=(7, 0))], {"a": [(1, 2, 3, 4)], "b": [(7, 0)]}),
        # Two pinned instances may share a chip.
        ([Demand("a", 1, pinned=(3,)), Demand("b", 1, pinned=(3,))], {"a": [(3,)], "b": [(3,)]}),
        # Neighbours at the end of the host go before chips that lie apart.
        ([Demand("a", 4, pinned=(0, 3, 4, 5)), Demand("b", 2, replicas=1)], {"a": [(0, 3, 4, 5)], "b": [(6, 7)]}),
    ],
)
def test_who_gets_which_chips(demands, expected):
    assert allot(demands, H200) == expected


def test_dies_of_one_card_stay_together():
    assert allot([Demand("chat", 4, replicas=2)], A3) == {"chat": [(0, 1, 2, 3), (4, 5, 6, 7)]}
    assert allot([Demand("chat", 1, replicas=2)], A3) == {"chat": [(0,), (2,)]}
    assert allot([Demand("chat", 3, replicas=2)], A3) == {"chat": [(0, 1, 2), (4, 5, 6)]}
    # Half cards are used when nothing else is left.
    assert len({chips for (chips,) in allot([Demand("chat", 1)], A3)["chat"]}) == 16


def test_an_instance_stays_on_the_parts_of_one_chip():
    divided = Accelerator("mi300x", "rocm", "gfx942", "amd", 16, 24 * 1024, devices_per_card=8, partition="CPX/NPS4")
    found = allot([Demand("chat", 3, replicas=4)], divided)["chat"]
    assert found == [(0, 1, 2), (8, 9, 10), (3, 4, 5), (11, 12, 13)]
    assert {chips[0] // 8 for chips in allot([Demand("chat", 8)], divided)["chat"]} == {0, 1}
    check_parts("chat", 8, 8, False, "venv", divided)
    check_parts("chat", 16, 16, True, "venv", replace(divided, partition="SPX/NPS1"))
    with pytest.raises(PlanError, match="tensor-parallel-size 16 is more than the 8 parts of one mi300x"):
        check_parts("chat", 16, 16, False, "container", divided)
    with pytest.raises(PlanError, match="over several hosts takes whole chips, and they are divided"):
        check_parts("chat", 8, 8, True, "container", divided)


def test_an_instance_takes_one_mig_instance_in_a_container():
    divided = Accelerator("h100", "cuda", "hopper", "nvidia", 14, 8908, devices_per_card=7, partition="7x1g.10gb")
    check_parts("chat", 1, 1, False, "container", divided)
    with pytest.raises(
        PlanError, match=r"^chat.runtime: found venv, expected container: vLLM fails with the name of a"
    ):
        check_parts("chat", 1, 1, False, "venv", divided)
    for tensor in (1, 2):
        with pytest.raises(PlanError, match="one replica takes 2 chips, and a program sees one MIG instance only"):
            check_parts("chat", 2, tensor, False, "container", divided)
    with pytest.raises(PlanError, match=r"an instance over several hosts takes whole chips.*; switch MIG off for it"):
        check_parts("chat", 1, 1, True, "container", divided)


def test_a_cpu_has_no_chips_and_one_instance_unless_told_otherwise():
    assert allot([Demand("a", 1), Demand("b", 2, replicas=2)], CPU) == {"a": [()], "b": [(), ()]}


@pytest.mark.parametrize(
    ("demands", "message"),
    [
        (
            [Demand("chat", 16)],
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 16 (1 replica of 16); the host has 8 x h200; "
            "lower tensor-parallel-size or replicas, or use another host",
        ),
        (
            [Demand("chat", 2, replicas=5)],
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 10 (5 replicas of 2); the host has 8 x h200; "
            "lower tensor-parallel-size or replicas, or use another host",
        ),
        (
            [Demand("b", 4), Demand("a", 8)],
            "vllm_instances: more chips requested than the host has: "
            "a needs 8 (1 replica of 8), b needs 4 (1 replica of 4), together 12; the host has 8 x h200; "
            "lower tensor-parallel-size or replicas, or use another host",
        ),
        (
            [Demand("a", 8), Demand("b", 1, pinned=(0,))],
            "vllm_instances.a: more chips requested than the host has: "
            "a needs 8 (1 replica of 8); the host has 8 x h200, of which other instances pin 1; "
            "lower tensor-parallel-size or replicas, or use another host",
        ),
        (
            [Demand("a", 1, pinned=(7, 8))],
            "vllm_instances.a.chips: found 8, but 8 x h200 are numbered 0 to 7",
        ),
        (
            [Demand("a", 4, pinned=(0, 1))],
            "vllm_instances.a.chips: found 2 chips, expected 4 for its parallelism",
        ),
    ],
)
def test_more_than_there_is(demands, message):
    with pytest.raises(PlanError) as caught:
        allot(demands, H200)
    assert str(caught.value) == message


def test_chips_of_a_cpu():
    with pytest.raises(PlanError) as caught:
        allot([Demand("chat", 1, pinned=(0,))], CPU)
    assert str(caught.value) == (
        "vllm_instances.chat.chips: a CPU has no chips to choose among; VLLM_CPU_OMP_THREADS_BIND under env keeps an "
        "instance to some cores"
    )


RECIPE = {"model": {"context_length": 131072, "kv_cache_bytes_per_token": 36864}}


@pytest.mark.parametrize(
    ("args", "needs", "words"),
    [
        ({}, 64.5, "60.0 GiB of weights and 4.5 GiB of KV cache for one request of 131072 tokens"),
        ({"max-model-len": 4096}, 60.1, "60.0 GiB of weights and 0.1 GiB of KV cache for one request of 4096 tokens"),
        ({"max-model-len": "8192"}, 60.3, "60.0 GiB of weights and 0.3 GiB of KV cache for one request of 8192 tokens"),
        ({"max-model-len": "16k"}, 60.5, "60.0 GiB of weights and 0.5 GiB of KV cache for one request of 16000 tokens"),
        ({"max-model-len": "16K"}, 60.6, "60.0 GiB of weights and 0.6 GiB of KV cache for one request of 16384 tokens"),
        # vLLM takes what fits.
        ({"max-model-len": "auto"}, 60, "60.0 GiB of weights"),
        ({"max-model-len": -1}, 60, "60.0 GiB of weights"),
        (
            {"kv-cache-dtype": "fp8"},
            62.2,
            "60.0 GiB of weights and 2.2 GiB of KV cache for one request of 131072 tokens",
        ),
        (
            {"kv-cache-dtype": "bfloat16"},
            64.5,
            "60.0 GiB of weights and 4.5 GiB of KV cache for one request of 131072 tokens",
        ),
    ],
)
def test_the_sum_by_a_manifest(args, needs, words):
    assert required_gib(RECIPE, {"vram_minimum_gb": 72}, 60 * GIB, args) == (needs, words)


# A name of a format states the bits of a parameter.
FORMATS = [
    (name, int(re.sub(r"\D", "", name))) for name in ("int8", "mxfp8", "fp8", "int4", "nvfp4", "mxfp4", "fp4", "bf16")
]


@pytest.mark.parametrize(
    ("count", "variant", "gib"),
    [
        # gemma-4-31B of upstream's recipes: 75 GB for a server, 62 GB of weights.
        ("31B", {"precision": "bf16", "vram_minimum_gb": 75}, 57.7),
        ("1T", {"precision": "int4", "vram_minimum_gb": 640}, 465.7),
        ("671B", {"precision": "fp8", "vram_minimum_gb": 893}, 624.9),
        # A format that the weights do not have: the recipe's own figure is smaller.
        ("117B", {"precision": "bf16", "vram_minimum_gb": 96}, 89.4),
        ("120B", {"precision": "int2/4/8", "vram_minimum_gb": 96}, None),
        ("30B-A3B", {"precision": "bf16", "vram_minimum_gb": 96}, None),
        ("31B", {"precision": "bf16"}, None),
        (None, {"precision": "bf16", "vram_minimum_gb": 96}, None),
        ("500 M", {"precision": "fp16", "vram_minimum_gb": 96}, 0.9),
        *(
            (f"{10**9 * 8 // bits // 10**8 / 10:g}B", {"precision": name, "vram_minimum_gb": 96}, 0.9)
            for name, bits in FORMATS
        ),
    ],
)
def test_weights_by_the_number_of_parameters(count, variant, gib):
    assert estimated_weights_gib({"model": {"parameter_count": count}}, variant) == gib


def test_the_sum_without_a_manifest():
    assert required_gib(RECIPE, {"vram_minimum_gb": 72}, None, {}) == (67.1, "72 GB (vram_minimum_gb of the recipe)")
    assert required_gib(RECIPE, {}, None, {}) == (None, "")


def test_a_recipe_that_says_nothing_of_the_cache():
    for model in ({}, {"context_length": 131072}, {"context_length": 131072, "kv_cache_bytes_per_token": None}):
        assert required_gib({"model": model}, {}, 60 * GIB, {}) == (60, "60.0 GiB of weights")


def fit(needs, chips, share=0.9, accelerator=H200):
    return fit_problem(needs, "the sum", chips, accelerator, share)


def test_what_fits_to_the_last_gib():
    assert not fit(126.9, 1)
    assert not fit(141, 1, None)
    assert not fit(280, 2, 1)
    assert not fit(None, 1)
    assert not fit(1000, 1, accelerator=CPU)
    assert not fit(1000, 1, accelerator=Accelerator("strix", "rocm", "gfx1150", "amd", 1, None))


@pytest.mark.parametrize(
    ("needs", "chips", "share", "message"),
    [
        (
            127,
            1,
            0.9,
            "does not fit: the sum make 127 GiB, 1 x h200 have 141.0 GiB, of which "
            "gpu-memory-utilization 0.9 allows 126.9 GiB; take more chips (tensor-parallel-size), a smaller "
            "max-model-len or variant, or another host",
        ),
        (
            200,
            2,
            0.5,
            "does not fit: the sum make 200 GiB, 2 x h200 have 282.0 GiB, of which "
            "gpu-memory-utilization 0.5 allows 141.0 GiB; take more chips (tensor-parallel-size), a smaller "
            "max-model-len or variant, or another host",
        ),
        (
            142,
            1,
            None,
            "does not fit: the sum make 142 GiB, 1 x h200 have 141.0 GiB; take more chips "
            "(tensor-parallel-size), a smaller max-model-len or variant, or another host",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_the_sum(needs, chips, share, message):
    assert fit(needs, chips, share) == message


def test_shared_chips_need_shares_that_fit_together():
    check_shares({"a": ([0, 1], 0.9), "b": ([2], 0.9)})
    check_shares({"a": ([0, 1], 0.5), "b": ([1], 0.5)})
    # 0.1 + 0.2 + 0.7 and their like are 1, whatever a float says.
    check_shares({name: ([0], share) for name, share in {"a": 0.35, "b": 0.35, "c": 0.3}.items()})
    check_shares({"one alone is vLLM's to refuse": ([0], 1.2)})
    with pytest.raises(PlanError) as caught:
        check_shares({"b": ([1], 0.5), "a": ([0, 1], 0.6), "c": ([2], 0.9)})
    assert str(caught.value) == (
        "vllm_instances: chip 1 is shared, and the gpu-memory-utilization of its instances is above 1: a 0.6, b 0.5; "
        "lower the shares, or give each instance its own chips"
    )


def test_memory_of_a_cpu_host_is_shared_by_all_its_instances():
    check_host_memory({"a": 4, "b": 4, "c": None}, CPU)
    check_host_memory({"a": 1000}, H200)
    check_host_memory({"a": 1000}, Accelerator("cpu", "cpu", "cpu", "cpu", 1, None))
    with pytest.raises(PlanError) as caught:
        check_host_memory({"b": 4.5, "a": 4}, CPU)
    assert str(caught.value) == (
        "vllm_instances: too little memory: "
        "a 4 GiB, b 4.5 GiB (weights and KV cache, or vram_minimum_gb of the recipe) need 8.5 GiB, "
        "1 x cpu has 8.0 GiB; choose a smaller variant, VLLM_CPU_KVCACHE_SPACE or another host"
    )


@pytest.mark.parametrize(
    ("demands", "words"),
    [
        (
            [Demand("chat", 3)],
            "vllm_instances: 2 of 8 x h200 remain unused (number 6, 7), because a replica needs another number",
        ),
        # On a host of a group, and among its own chips, the planner chose the number.
        ([Demand("chat", 4, replicas=1, spans=True)], "4 of 8 x h200 remain unused (number 4, 5, 6, 7)"),
        ([Demand("chat", 4, pinned=(0, 1, 2, 3, 4, 5, 6))], "4 of 8 x h200 remain unused (number 4, 5, 6, 7)"),
        ([Demand("chat", 3), Demand("one", 4, replicas=1)], "1 of 8 x h200 remain unused"),
        ([Demand("chat", 2)], ""),
        # Chosen so.
        ([Demand("chat", 2, replicas=1)], ""),
        ([Demand("chat", 2, pinned=(0, 1))], ""),
    ],
)
def test_chips_that_remain_are_mentioned(demands, words):
    found = unused_chips(demands, allot(demands, H200), H200)
    assert words in found
    assert bool(words) is bool(found)


def test_a_cpu_has_no_chips_that_could_remain():
    assert unused_chips([Demand("chat", 1)], {"chat": [()]}, CPU) == ""
