# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan instances: replicas, chips, memory, and instances that span hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import show_value
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTable
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import PlanError

from tests.fakes import plans as fakes
from tests.fakes.plans import (
    A3,
    CPU,
    GIB,
    H200,
    MANIFESTS,
    RELEASE,
    plan,
    plans,
    recipe,
    refusal,
)


def test_a_host_is_filled_with_replicas_that_are_pinned_to_their_chips():
    found = plans({"chat": {"recipe": "org/model", "port": 8100}})
    assert [(one.instance, one.replica_of, one.chips, one.listen["port"]) for one in found] == [
        ("chat", "chat", [0, 1], 8100),
        ("chat-2", "chat", [2, 3], 8101),
        ("chat-3", "chat", [4, 5], 8102),
        ("chat-4", "chat", [6, 7], 8103),
    ]
    assert [one.config["port"] for one in found] == [8100, 8101, 8102, 8103]
    assert found[3].devices == found[3].container["devices"] == ["nvidia.com/gpu=6", "nvidia.com/gpu=7"]
    assert found[3].env["HOME"] == "/var/cache/vllm/chat-4"
    assert "/etc/vllm/chat-4.yaml:/etc/vllm/chat-4.yaml:ro" in found[3].mounts
    assert {tuple(one.args.items()) for one in found} == {tuple(found[0].args.items())}


@pytest.mark.parametrize(
    ("variant", "requested", "chips"),
    [
        # As ascend_w8a8 of upstream's Qwen3.6-27B has it: one instance of sixteen dies, not eight of two.
        ({"tp": 2, "extra_args": ["--data-parallel-size", "8"]}, {}, [16]),
        ({"tp": 2, "extra_args": ["--data-parallel-size", "4"]}, {}, [8, 8]),
        ({"tp": 2, "extra_args": ["--data-parallel-size", "8"]}, {"data-parallel-size": 2}, [4, 4, 4, 4]),
        ({"tp": 2, "extra_args": ["--data-parallel-size", "2"]}, {"tensor-parallel-size": 4}, [8, 8]),
        ({"tp": 2, "extra_args": ["--pipeline-parallel-size", "2"]}, {}, [4, 4, 4, 4]),
    ],
)
def test_an_instance_gets_the_chips_that_the_arguments_of_its_recipe_take(variant, requested, chips):
    setting = recipe(variants={"default": {"vram_minimum_gb": 60, **variant}})
    found = plans({"chat": {"recipe": "org/model", "args": requested}}, A3, setting)
    assert [len(one.chips) for one in found] == chips
    assert all(one.args["data-parallel-size"] for one in found if "data-parallel-size" in one.args)


def test_a_host_that_is_too_small_for_the_arguments_of_a_recipe():
    setting = recipe(
        variants={"default": {"vram_minimum_gb": 60, "tp": 2, "extra_args": ["--data-parallel-size", "8"]}}
    )
    problem = refusal({}, a_recipe=setting)
    assert problem.startswith("vllm_instances.chat: more chips requested than the host has: chat needs 16")


def test_a_mig_instance_that_is_too_small_asks_for_a_larger_one():
    divided = Accelerator(
        "h100", "cuda", "hopper", "nvidia", 28, 8908, 7, ("nvidia.com/gpu=all",), partition="7x1g.10gb"
    )
    needs = recipe(variants={"default": {"vram_minimum_gb": 60}})
    problem = refusal({}, divided, needs, manifests={})
    assert "take larger MIG instances (accelerator_partition), a smaller max-model-len or variant" in problem
    assert "tensor-parallel-size" not in problem and "of this host would do" not in problem
    found = plans(
        {"chat": {"recipe": "org/model"}}, divided, recipe(variants={"default": {"vram_minimum_gb": 6}}), manifests={}
    )
    names = [device for one in found for device in one.devices]
    assert sorted(names) == [f"nvidia.com/gpu={chip}:{part}" for chip in range(4) for part in range(7)]


def test_a_recipe_s_estimate_counts_for_the_chips_that_its_arguments_take():
    # As upstream's DeepSeek-V4-Flash on an Atlas 800 A3: tp 8, and in the end four dies, which are too small.
    named = {"vram_minimum_gb": 341, "tp": 8, "extra_args": ["--data-parallel-size", "1"]}
    smaller = {"single_node_tp": {"vllm_args": ["--tensor-parallel-size", "4"]}}
    assert plan({}, A3, recipe(variants={"default": named}), manifests={}).chips == list(range(8))
    problem = refusal({}, A3, recipe(variants={"default": named}, strategy_overrides=smaller), manifests={})
    assert "341 GB (vram_minimum_gb of the recipe) make 317.6 GiB, 4 x ascend_a3 have 256.0 GiB" in problem


def test_an_estimate_counts_unless_vllm_quantizes_the_weights_while_it_loads_them():
    large = recipe(variants={"default": {"vram_minimum_gb": 9999}})
    lenient = {"site": {"strict": False}, "manifests": {}}
    assert "does not fit" in refusal({"args": {"quantization": "ascend"}}, A3, large, **lenient)
    assert plan({"args": {"quantization": "fp8"}}, A3, large, **lenient).chips == list(range(16))


@pytest.mark.parametrize("own", [{"extra_args": ["--quantization", "fp8"]}, {"precision": "fp8"}])
def test_an_estimate_counts_where_the_recipe_has_made_it_for_quantized_weights(own):
    large = recipe(variants={"default": {"vram_minimum_gb": 9999, **own}})
    args = {} if "extra_args" in own else {"quantization": "fp8"}
    problem = refusal({"args": args}, H200, large, site={"strict": False}, manifests={})
    assert "9999 GB (vram_minimum_gb of the recipe)" in problem


def test_replicas_of_a_venv_see_their_chips_only():
    stack = {**RELEASE["stacks"]["cpu"], "minimum_driver": "1"}
    release = {**RELEASE, "stacks": {"cuda": stack}}
    found = plans({"chat": {"recipe": "org/model"}}, release=release)
    assert [one.env["CUDA_VISIBLE_DEVICES"] for one in found] == ["0,1", "2,3", "4,5", "6,7"]


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ({"chat": {"replicas": 2}}, {"chat": [0, 1], "chat-2": [2, 3]}),
        ({"chat": {"replicas": 1}}, {"chat": [0, 1]}),
        ({"chat": {"args": {"tensor-parallel-size": 8}}}, {"chat": list(range(8))}),
        ({"chat": {"args": {"tensor-parallel-size": "4"}}}, {"chat": [0, 1, 2, 3], "chat-2": [4, 5, 6, 7]}),
        (
            {"chat": {"args": {"pipeline-parallel-size": 2}}},
            {"chat": [0, 1, 2, 3], "chat-2": [4, 5, 6, 7]},
        ),
        (
            {"chat": {"args": {"prefill-context-parallel-size": 2}}},
            {"chat": [0, 1, 2, 3], "chat-2": [4, 5, 6, 7]},
        ),
        ({"chat": {"args": {"data-parallel-size": 4}}}, {"chat": list(range(8))}),
        # The plan's own size leaves room for the copies: vLLM's guides name those alone.
        ({"chat": {"args": {"data-parallel-size": 8}}}, {"chat": list(range(8))}),
        ({"chat": {"args": {"pipeline-parallel-size": 8}}}, {"chat": list(range(8))}),
        ({"chat": {"chips": [0, 1, 2, 3], "args": {"data-parallel-size": 4}}}, {"chat": [0, 1, 2, 3]}),
        ({"chat": {"chips": [0, 1], "args": {"data-parallel-size": 2}}}, {"chat": [0, 1]}),
        ({"chat": {"args": {"tensor-parallel-size": None, "data-parallel-size": 8}}}, {"chat": list(range(8))}),
        (
            {"a": {"port": 8000}, "b": {"port": 9000}},
            {"a": [0, 1], "a-2": [2, 3], "b": [4, 5], "b-2": [6, 7]},
        ),
        (
            {"a": {"port": 8000, "replicas": 3}, "b": {"port": 9000}},
            {"a": [0, 1], "a-2": [2, 3], "a-3": [4, 5], "b": [6, 7]},
        ),
        (
            {"a": {"port": 8000, "chips": [0, 1]}, "b": {"port": 9000, "replicas": 1}},
            {"a": [0, 1], "b": [2, 3]},
        ),
    ],
)
def test_who_gets_which_chips(instances, expected):
    found = plans({name: {"recipe": "org/model", **requested} for name, requested in instances.items()})
    assert {one.instance: one.chips for one in found} == expected


def test_dies_of_an_a3_come_in_pairs():
    found = plans({"chat": {"recipe": "org/model", "replicas": 2}}, A3)
    assert [one.chips for one in found] == [[0, 1], [2, 3]]


def test_shared_chips_need_shares_that_fit():
    shared = {"recipe": "org/model", "chips": [0, 1]}
    half = {"gpu-memory-utilization": 0.45}
    good = {"a": {**shared, "args": half}, "b": {**shared, "port": 8001, "args": half}}
    assert [one.chips for one in plans(good)] == [[0, 1], [0, 1]]
    with pytest.raises(PlanError) as caught:
        plans({**good, "b": {**shared, "port": 8001}})
    assert str(caught.value) == (
        "vllm_instances: chip 0 is shared, and the gpu-memory-utilization of its instances is above 1: a 0.45, b 0.92; "
        "lower the shares, or give each instance its own chips"
    )


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (
            {"chat": {}, "chat-2": {"port": 9000, "replicas": 1}},
            "vllm_instances.chat-2: a replica of another instance has the same name; rename one of them",
        ),
        (
            {"chat": {"replicas": 2}, "tools": {"port": 8001, "replicas": 1}},
            "vllm_instances.tools.port: 8001 is the port of vllm_instances.chat (of the replica chat-2) too; give "
            "one of "
            "them another",
        ),
        (
            {"chat": {"port": 22, "replicas": 1}},
            "vllm_instances.chat.port: 22 is the port of SSH too; give the instance another",
        ),
        (
            {"chat": {"replicas": 1, "scale": {"max": 1}}, "tools": {"port": 8470, "replicas": 2}},
            "vllm_instances.tools.port: 8471 (of the replica tools-2) is the port of the door of scale too; give the "
            "instance another",
        ),
        (
            {"chat": {"replicas": 1}, "tools": {"replicas": 1}},
            "vllm_instances.tools.port: 8000 is the port of vllm_instances.chat too; give one of them another",
        ),
        (
            {"chat": {"args": {"tensor-parallel-size": 16}}},
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 16 (1 replica of 16); the host has 8 x h200; lower "
            "tensor-parallel-size or replicas, or use another host",
        ),
        (
            {"chat": {"strategy": "single_node_dep", "args": {"tensor-parallel-size": 2}}},
            "vllm_instances.chat: more chips requested than the host has: "
            "chat needs 16 (1 replica of 16); the host has 8 x h200; lower "
            "tensor-parallel-size or replicas, or use another host",
        ),
        (
            {"chat": {"chips": [0, 1], "args": {"tensor-parallel-size": 4}}},
            "vllm_instances.chat.chips: found 2 chips, expected 4 for its parallelism",
        ),
        (
            {"chat": {"chips": [8]}},
            "vllm_instances.chat.chips: found 8, but 8 x h200 are numbered 0 to 7",
        ),
        *(
            (
                {"chat": {"args": {"tensor-parallel-size": value}}},
                "vllm_instances.chat.args.tensor-parallel-size: "
                f"found {show_value(value)}, expected a whole number from 1",
            )
            for value in (0, -1, "two", True, 1.5)
        ),
    ],
)
def test_instances_that_cannot_stand_together(instances, message):
    with pytest.raises(PlanError) as caught:
        plans(
            {name: {"recipe": "org/model", **requested} for name, requested in instances.items()},
            a_recipe=recipe(compatible_strategies=["single_node_tp", "single_node_dep"]),
        )
    assert str(caught.value) == message


def test_the_sum_of_weights_and_cache_by_chips():
    big = recipe(model={"context_length": 131072, "kv_cache_bytes_per_token": 1048576})
    assert plan(a_recipe=big).memory_required_gib == 192.0
    assert refusal({"args": {"tensor-parallel-size": 1}}, a_recipe=big) == (
        "vllm_instances.chat: does not fit: 64.0 GiB of weights and 128.0 GiB of KV cache for one request of 131072 "
        "tokens "
        "make 192 GiB, 1 x h200 have 141.0 GiB, of which gpu-memory-utilization 0.92 allows 129.7 GiB; take more chips "
        "(tensor-parallel-size), a smaller max-model-len or variant, or another host"
    )
    assert plan({"args": {"tensor-parallel-size": 1, "max-model-len": 4096}}, a_recipe=big).memory_required_gib == 68.0


def test_with_a_manifest_the_sum_is_held_against_the_chips_that_the_recipe_names():
    model = {"context_length": 131072, "kv_cache_bytes_per_token": 1048576}
    small = recipe(model=model, variants={"default": {"tp": 1}})
    assert "make 192 GiB, 1 x h200 have 141.0 GiB" in refusal(a_recipe=small)


HUGE = recipe(variants={"default": {"tp": 8, "vram_minimum_gb": 640}})


def test_without_a_manifest_the_recipe_s_figure_counts_for_the_chips_that_were_asked_for():
    assert plan(a_recipe=HUGE, manifests={}).chips == list(range(8))
    assert refusal({"args": {"tensor-parallel-size": 2}}, a_recipe=HUGE, manifests={}) == (
        "vllm_instances.chat: does not fit: 640 GB (vram_minimum_gb of the recipe) make 596 GiB, 2 x h200 have "
        "282.0 GiB; "
        "take more chips (tensor-parallel-size), a smaller max-model-len or variant, or another host; 8 chips of this "
        "host would do"
    )


# gemma-4-31B of upstream's recipes names two chips for all hardware.
GEMMA = recipe(
    model={"parameter_count": "31B"},
    variants={"default": {"precision": "bf16", "vram_minimum_gb": 75}},
    strategy_overrides={"single_node_tp": {"tp": 2}},
)
L4 = Accelerator("l4", "cuda", "ada", "nvidia", 8, 23034, visible_env="CUDA_VISIBLE_DEVICES")


def test_a_named_size_on_whose_chips_the_weights_alone_do_not_fit_is_not_taken():
    found = plan(accelerator=L4, a_recipe=GEMMA, manifests={})
    assert found.args["tensor-parallel-size"] == 4
    assert plan(accelerator=replace(L4, memory_mib=49140), a_recipe=GEMMA, manifests={}).args == {
        **found.args,
        "tensor-parallel-size": 2,
    }
    too_few = refusal(accelerator=replace(L4, count=2), a_recipe=GEMMA, manifests={})
    assert "75 GB (vram_minimum_gb of the recipe) make 69.8 GiB, 2 x l4 have 45.0 GiB" in too_few


def test_a_named_size_on_whose_chips_the_recipe_s_estimate_does_not_fit_is_not_taken():
    one = {**GEMMA, "strategy_overrides": {"single_node_tp": {"tp": 1}}}
    card = replace(L4, memory_mib=64 * 1024)
    found = plan(accelerator=card, a_recipe=one, manifests={})
    assert (found.args["tensor-parallel-size"], found.memory_required_gib) == (2, 69.8)
    assert not [text for text in found.warnings if "GiB" in text]
    alone = refusal(accelerator=replace(card, count=1), a_recipe=one, manifests={})
    assert "75 GB (vram_minimum_gb of the recipe) make 69.8 GiB, 1 x l4 have 64.0 GiB" in alone


@pytest.mark.parametrize(
    "more",
    [
        {"meta": {"hardware": {"l4": "verified"}}, "strategy_overrides": {"single_node_tp": {"tp": 1}}},
        {"strategy_overrides": {"single_node_tp": {"tp": {"l4": 1, "default": 2}}}},
    ],
)
def test_a_size_for_hardware_of_the_recipe_is_kept_with_both_numbers(more):
    card = replace(L4, memory_mib=64 * 1024)
    found = plan(accelerator=card, a_recipe={**GEMMA, **more}, manifests={})
    assert found.chips == [0]
    (warning,) = [text for text in found.warnings if "GiB" in text]
    assert "needs 69.8 GiB by vram_minimum_gb of the recipe, and the 1 x l4 that it names have 64.0 GiB" in warning
    assert warning.endswith("; if vLLM does not start, lower max-model-len, or set args tensor-parallel-size 2")
    assert "1 x l4 have 64.0 GiB" in refusal(
        accelerator=replace(card, count=1), a_recipe={**GEMMA, **more}, manifests={}
    )


def test_a_size_for_this_very_hardware_counts_although_the_weights_are_larger():
    named = {**GEMMA, "strategy_overrides": {"single_node_tp": {"tp": {"l4": 2, "default": 1}}}}
    assert plan(accelerator=L4, a_recipe=named, manifests={}).args["tensor-parallel-size"] == 2


def test_a_strategy_takes_no_named_chips_that_do_not_hold_the_weights():
    experts = {
        **GEMMA, "compatible_strategies": ["single_node_tep"], "strategy_overrides": {"single_node_tep": {"tp": 2}}
    }  # fmt: skip
    assert plan(accelerator=L4, a_recipe=experts, manifests={}).args["tensor-parallel-size"] == 8
    assert (
        plan(accelerator=replace(L4, memory_mib=49140), a_recipe=experts, manifests={}).args["tensor-parallel-size"]
        == 2
    )


def test_a_model_that_does_not_fit_names_the_variants_that_do():
    variants = {
        "default": {"vram_minimum_gb": 2000},
        "fp8": {"model_id": "org/model-FP8", "vram_minimum_gb": 1000},
        "big": {"vram_minimum_gb": 1500},
        "fp4": {"precision_hardware": {"generation": "blackwell"}, "vram_minimum_gb": 500},
        "unknown": {},
    }
    message = refusal(a_recipe=recipe(variants=variants), manifests={})
    assert message.endswith(", or another host; the variants that fit: fp8 (weights org/model-FP8)")


def test_weights_that_are_spread_over_hosts_need_their_share_of_each():
    both = recipe(
        compatible_strategies=["multi_node_tp", "multi_node_tp_dp"], variants={"default": {"vram_minimum_gb": 2000}}
    )
    requested = {"nodes": ["h1", "h2"]}
    assert plan(requested, a_recipe=both, manifests={}).memory_required_gib == 1862.6
    # Here each host holds all of them.
    assert refusal({**requested, "strategy": "multi_node_tp_dp"}, a_recipe=both, manifests={}) == (
        "vllm_instances.chat: does not fit: 2000 GB (vram_minimum_gb of the recipe) make 1862.6 GiB, 8 x h200 have "
        "1128.0 GiB; "
        "take more chips (tensor-parallel-size), a smaller max-model-len or variant, or another host"
    )


@pytest.mark.parametrize(
    ("args", "space", "gib"),
    [({}, None, 64), ({}, "8", 72), ({"tensor-parallel-size": 2}, "8", 80), ({"tensor-parallel-size": 2}, "many", 64)],
)
def test_each_process_on_a_cpu_has_a_cache_of_its_variable(monkeypatch, args, space, gib):
    """CPUWorker.determine_available_memory returns VLLM_CPU_KVCACHE_SPACE for each worker."""
    table = {"version": "2.0.0", "flags": fakes.FLAGS, "env": [*fakes.ENV, "VLLM_CPU_KVCACHE_SPACE"]}
    monkeypatch.setattr(fakes, "TABLE", OptionTable.from_data(table))
    asked = {"args": args, "env": {"VLLM_CPU_KVCACHE_SPACE": space} if space else {}}
    assert plan(asked, accelerator=replace(CPU, memory_mib=128 * 1024)).memory_required_gib == gib


@pytest.mark.parametrize(
    ("needs", "mib", "chips", "gib"),
    [(80, 80 * 1024, 1, 74.5), (80, 81559, 1, 74.5), (84, 80 * 1024, 2, 78.2), (80, 72 * 1024, 2, 74.5)],
)
def test_a_recipe_means_the_card_of_which_a_driver_shows_a_little_less(needs, mib, chips, gib):
    """An H100 of 80 GB has 80 GiB, of which nvidia-smi shows 81559 MiB."""
    a_recipe = recipe(variants={"default": {"vram_minimum_gb": needs}})
    found = plan(accelerator=replace(H200, memory_mib=mib), a_recipe=a_recipe, manifests={})
    assert (len(found.chips), found.memory_required_gib) == (chips, gib)


def test_a_cpu_needs_what_the_recipe_says_even_where_the_weights_are_small():
    small = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": GIB}}}}
    a_recipe = recipe(variants={"default": {"tp": 1, "vram_minimum_gb": 6}})
    assert plan(accelerator=CPU, a_recipe=a_recipe, manifests=small).memory_required_gib == 5.6
    instances = {"a": {"recipe": "org/model"}, "b": {"recipe": "org/model", "port": 8001}}
    with pytest.raises(PlanError) as caught:
        plans(instances, CPU, a_recipe, manifests=small)
    assert str(caught.value) == (
        "vllm_instances: too little memory: "
        "a 5.6 GiB, b 5.6 GiB (weights and KV cache, or vram_minimum_gb of the recipe) need 11.2 GiB, "
        "1 x cpu has 8.0 GiB; choose a smaller variant, VLLM_CPU_KVCACHE_SPACE or another host"
    )


def test_an_instance_beside_other_gpus_has_only_its_own_by_their_numbers():
    station = replace(H200, count=1, numbers=(1,))
    found = plan({"recipe": "org/model"}, accelerator=station)
    assert (found.chips, found.numbers, found.devices) == ([0], [1], ["nvidia.com/gpu=1"])
    assert not hasattr(plan({"recipe": "org/model"}, accelerator=replace(station, numbers=None)), "numbers")
