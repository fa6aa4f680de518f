# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import library
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.fit import estimated_ways, suited_chips
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError, SiteSettings
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.memory import weights_size
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import plan_instances

from tests.fakes.plans import Plan

GIB = 1024**3
SITE = SiteSettings("0.33.0", "/srv/models", "/srv/encodings", "/var/cache/vllm", "/opt/vllm", 60)


def planned(chip, count=1, recipe="openai/gpt-oss-20b", source=None, **instance):
    """Return the plan of one replica with the catalogue's own recipe and manifest."""
    accelerator = declared_accelerator(load_catalogue(), chip, count)
    requested = {"chat": {"recipe": recipe, "replicas": 1, **instance}}
    return Plan(**plan_instances("h", accelerator, requested, SITE, source or library())[0])


def refusal(*chips, **instance):
    with pytest.raises(PlanError) as caught:
        planned(*chips, **instance)
    return str(caught.value)


def origin(plan, key):
    return next(row for row in plan.explain if row["key"] == key)


def test_a_context_that_fits_is_left_to_the_model():
    plan = planned("l40s")
    assert "max-model-len" not in plan.args
    assert plan.memory_required_gib == 18.5


def test_a_context_is_chosen_where_the_model_s_own_does_not_fit():
    plan = planned("h100", recipe="openai/gpt-oss-120b", args={"max-num-seqs": 4000, "max-num-batched-tokens": 4096})
    assert plan.args["max-model-len"] == 97280
    assert origin(plan, "max-model-len") == {
        "key": "max-model-len",
        "value": 97280,
        "layer": "collection",
        "because": "the longest context that fits; the model's own of 131072 tokens does not",
        "overrides": [],
    }


@pytest.mark.parametrize("share", [0.82, 0.83, 0.84, 0.85, 0.86, 0.87, 0.88])
def test_the_context_that_is_chosen_is_not_refused(share):
    plan = planned("h100", recipe="openai/gpt-oss-120b", args={"gpu-memory-utilization": share})
    assert 0 < plan.args.get("max-model-len", 131072) <= 131072


@pytest.mark.parametrize("length", [131072, "auto", None])
def test_a_length_that_somebody_set_is_kept(length):
    args = {"max-num-seqs": 4000, "max-num-batched-tokens": 4096, "max-model-len": length}
    if length == "auto":
        assert planned("h100", recipe="openai/gpt-oss-120b", args=args).args["max-model-len"] == "auto"
    else:
        assert "does not fit" in refusal("h100", recipe="openai/gpt-oss-120b", args=args)


def test_a_refusal_names_the_calculation_and_all_ways_out():
    args = {"max-model-len": 131072, "tensor-parallel-size": 1, "max-num-seqs": 4000, "max-num-batched-tokens": 4096}
    assert refusal("h100", 4, recipe="openai/gpt-oss-120b", args=args) == (
        "vllm_instances.chat: does not fit: 60.8 GiB of weights, 4.8 GiB of KV cache for one request of 131072 tokens "
        "and 11.6 GiB for activations and graphs on each chip make 77.1 GiB, 1 x h100 have 80.0 GiB, of which "
        "gpu-memory-utilization 0.95 allows 76.0 GiB; take more chips (tensor-parallel-size), a smaller max-model-len "
        "or variant, or another host; tensor-parallel-size 2 would fit; max-model-len 97280 would fit; as many chips "
        "of h200, b200, mi300x, mi325x would do"
    )


def test_a_replica_on_several_chips_needs_the_memory_of_all_of_them():
    model = {"recipe": "openai/gpt-oss-120b"}
    one, two, eight = (
        planned("h200", chips, **model, args={"tensor-parallel-size": chips, "max-model-len": 4096})
        for chips in (1, 2, 8)
    )
    # The weights once, and what each process needs for itself for each of them.
    assert 60 < one.memory_required_gib < two.memory_required_gib < eight.memory_required_gib
    args = {"tensor-parallel-size": 2, "max-model-len": 4096}
    assert "does not fit: 34.3 GiB of weights" in refusal("l4", 2, recipe="openai/gpt-oss-120b", args=args)


def test_a_refusal_names_chips_with_more_memory_that_the_recipe_lists():
    # Not Atlas, which lacks the number format.
    assert refusal("l40s", recipe="openai/gpt-oss-120b").endswith("; as many chips of a100, h100, h200, b200 would do")


@pytest.mark.parametrize("more", [{"chips": [3]}, {"replicas": 4}])
def test_other_chips_are_as_many_as_one_replica_takes(more):
    args = {"tensor-parallel-size": 1}
    ways = refusal("l40s", 4, recipe="openai/gpt-oss-120b", args=args, **more).partition("or another host; ")[2]
    # Four chips for each of four replicas, or beside the one that is named, are not there.
    assert ways == "as many chips of a100, h100, h200, b200 would do"


def test_a_pinned_draft_model_takes_memory_too():
    features = ["tool_calling", "spec_decoding"]
    plain, unpinned = planned("h200"), planned("h200", features=features)
    name = unpinned.models[1]
    # Nothing is known of a draft model without a manifest.
    assert name != unpinned.model and unpinned.memory_required_gib == plain.memory_required_gib
    files = {"model.safetensors": {"size": 3 * GIB, "sha256": "0" * 64}, "tokenizer.json": {"size": GIB}}
    manifest = {"repository": name, "revision": "a" * 40, "files": files}
    own = library()
    pinned = planned(
        "h200",
        features=features,
        source=replace(own, manifest=lambda model: manifest if model == name else own.manifest(model)),
    )
    assert pinned.memory_required_gib == pytest.approx(plain.memory_required_gib + 3, abs=0.11)
    assert pinned.args["speculative-config"]["model"] == f"/srv/models/{name}/{'a' * 40}"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, ""),
        ({"compress_ratios": [2] * 24}, "compress_ratios: caches of compressed tokens"),
        ({"model_type": "minimax_m3_text"}, "the index of its sparse attention"),
        ({"hidden_size": "many"}, "its configuration lacks sizes"),
    ],
)
def test_a_cache_of_unknown_size_is_named(config, reason):
    own = library()

    def recipe(name):
        found = own.recipe(name)
        model = {key: value for key, value in found["model"].items() if key != "kv_cache_bytes_per_token"}
        return {**found, "model": model}

    def manifest(name):
        found = own.manifest(name)
        return {**found, "config": {**found["config"], **config}} if found else None

    warnings = planned("h200", source=replace(own, recipe=recipe, manifest=manifest)).warnings
    found = [text for text in warnings if "KV cache is unknown" in text]
    assert len(found) == bool(reason)
    assert all(f": {reason}; if vLLM does not start, lower max-model-len" in text for text in found)


def test_what_would_hold_the_recipe_s_own_estimate_is_named():
    def ways(count, chips, needs, **recipe):
        accelerator = declared_accelerator(load_catalogue(), "h100", count)
        entry = SimpleNamespace(recipe=recipe, variant=recipe.pop("variant", {}))
        return estimated_ways(recipe, needs, chips, accelerator, suited_chips(entry, "", library()))

    assert ways(8, 8, 911, meta={"hardware": {"h100": "verified", "h200": "verified", "b200": "verified"}}) == [
        "as many chips of h200, b200 would do"
    ]
    assert ways(8, 2, 200, meta={"hardware": {"h100": "verified"}}) == ["4 chips of this host would do"]
    spread = {"meta": {"hardware": {"h100": "verified"}}, "compatible_strategies": ["single_node_tp", "multi_node_tp"]}
    assert ways(8, 8, 911, **spread) == ["2 such hosts together would do (nodes)"]
    assert ways(8, 8, 1e15, **spread) == []
    assert ways(8, 8, 911, meta={"hardware": {"h100": "verified"}}) == []
    # The variant is for the first of the chips that the recipe lists.
    own = {"meta": {"hardware": {"h200": "verified", "mi325x": "verified"}}}
    assert ways(8, 8, 911, **own) == ["as many chips of h200, mi325x would do"]
    assert ways(8, 8, 911, **own, variant={"precision": "fp8", "supported_hardware": ["h200"]}) == [
        "as many chips of h200 would do"
    ]


def test_several_hosts_are_those_of_the_recipe_s_own_strategies():
    """As upstream's recipe of Kimi-K3 has it for Ascend 910C."""
    recipe = {
        "model": {"architecture": "moe"},
        "meta": {"hardware": {"ascend_910c": "verified"}},
        "compatible_strategies": ["single_node_tp", "multi_node_tp"],
        "strategy_hardware": {
            "multi_node_tp": {"ascend_910c": "unsupported"},
            "multi_node_tp_dp": {"ascend_910c": "supported"},
        },
        "strategy_min_gpus": {"multi_node_tp": 8, "multi_node_tp_dp": 16, "ascend_910c": 64},
    }

    def ways(**more):
        accelerator = declared_accelerator(load_catalogue(), "ascend_a3", 16)
        return estimated_ways({**recipe, **more}, 1593.5, 16, accelerator, [])

    assert ways() == ["4 such hosts together would do (nodes)"]
    assert ways(strategy_min_gpus={"ascend_910c": {"multi_node_tp_dp": 48}}) == [
        "3 such hosts together would do (nodes)"
    ]
    assert ways(strategy_min_gpus={"multi_node_tp_dp": 16}) == ["2 such hosts together would do (nodes)"]
    assert ways(strategy_min_gpus={"multi_node_tp_dp": {"ascend_910c": 48}}) == [
        "3 such hosts together would do (nodes)"
    ]
    for floor in (None, {"h100": 64}):
        assert ways(strategy_min_gpus={"multi_node_tp_dp": floor}) == ["2 such hosts together would do (nodes)"]
    # Each host holds all weights of a dense model.
    assert ways(model={"architecture": "dense"}) == []


def test_only_safetensors_are_weights():
    files = {"a.safetensors": {"size": 5}, "b.safetensors": {"size": 7}, "tokenizer.json": {"size": 100}}
    assert weights_size({"files": files}) == 12
    assert weights_size({"files": {"tokenizer.json": {"size": 100}}}) is None
    assert weights_size(None) is None


def test_of_two_formats_only_the_one_that_is_read_counts():
    files = {"model-1.safetensors": {"size": 5}, "consolidated.safetensors": {"size": 6}, "x.safetensors": {"size": 1}}
    assert weights_size({"files": files}) == 6
    assert weights_size({"files": files}, "mistral") == 7
    assert weights_size({"files": {"consolidated.safetensors": {"size": 6}}}) == 6


@pytest.mark.parametrize("listed", [True, False])
def test_a_manifest_without_config_is_said_once(listed):
    own, name = library(), "openai/gpt-oss-20b"
    pinned = own.manifest(name)
    files = {key: entry for key, entry in pinned["files"].items() if listed or key != "config.json"}
    poor = {**{key: value for key, value in pinned.items() if key != "config"}, "files": files}
    (warning,) = planned("h200", source=replace(own, manifest=lambda _name: poor)).warnings
    assert warning.startswith(
        f"vllm_instances.chat: the manifest of {name} has no config, so the model's attention heads, its longest "
        "context and the size of its KV cache are unknown, and vLLM may refuse to start; "
    )
    assert warning.endswith("weights_manifest_path: [DIR]" if listed else "; the weights have no config.json")
