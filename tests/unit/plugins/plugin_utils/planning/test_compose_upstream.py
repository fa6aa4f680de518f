# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes in upstream's schema, and the words that upstream's rules make of them, written by hand from these rules.

Order: model, variant (and its block for the exact hardware), strategy and its size, strategy override, hardware,
features. A flag given twice: the last one wins, and stands where the last one stood.
"""

from __future__ import annotations

import shlex

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.arguments import to_argv
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.compose import (
    Choice,
    Layer,
    compose,
    features_on,
    layers_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.strategies import (
    Nodes,
    choose_strategy,
    sizes,
    tensor_size,
)

TABLE = load_table("0.33.0")


def host(model, generation, vendor="nvidia", stack="cuda", count=8, gib=141):
    return Accelerator(model, stack, generation, vendor, count, gib * 1024)


H100 = host("h100", "hopper", gib=80)
H200 = host("h200", "hopper")
B200 = host("b200", "blackwell", gib=180)
L40S = host("l40s", "ada", gib=48)
MI300X = host("mi300x", "gfx942", vendor="amd", stack="rocm", gib=192)
MI355X = host("mi355x", "gfx950", vendor="amd", stack="rocm", gib=288)
XEON = host("cpu", "cpu", vendor="cpu", stack="cpu", count=1, gib=256)

MODEL = {"model_id": "org/model", "base_args": ["--seed", "1"], "base_env": {"LEVEL": "model"}}


def rendered(recipe, accelerator, variant="default", requested=None, modes=None, strategy=None, nodes=None):
    """Return the words after the model, and the environment."""
    nodes = nodes or Nodes()
    strategy = choose_strategy(recipe, accelerator, strategy, nodes.count, "chat")
    entry = (recipe.get("variants") or {}).get(variant) or {}
    on = features_on(recipe, accelerator, strategy, variant, requested, modes or {}, "chat")
    sizes_here = [size for size in (1, 2, 4, 8) if size <= accelerator.count]
    needs = entry.get("vram_minimum_gb")

    def holds(size):
        return needs <= size * accelerator.memory_mib / 1024 if needs else None

    tensor, because = tensor_size(recipe, entry, {}, accelerator, sizes_here, holds)
    choice = Choice(variant, strategy, None, on, sizes(strategy, tensor, accelerator.count, nodes, because))
    composed = compose(layers_of(recipe, accelerator, choice, {}), TABLE, "recipe")
    return shlex.join(to_argv({"model": "m", **composed.args}, TABLE)[3:]), composed.env


def words(*args, **kwargs):
    return rendered(*args, **kwargs)[0]


LAYERED = {
    "model": MODEL,
    "variants": {
        "default": {"vram_minimum_gb": 100, "extra_args": ["--block-size", "16"], "extra_env": {"V": "variant"}},
        "exact": {
            "vram_minimum_gb": 100,
            "extra_args": ["--block-size", "16"],
            "hardware_overrides": {
                "h200": {"extra_args": ["--block-size", "32"], "extra_env": {"V": "exact"}},
                "hopper": {"extra_args": ["--max-num-seqs", "9"]},
            },
        },
    },
    "compatible_strategies": ["single_node_tp", "single_node_tep", "single_node_dep"],
    "strategy_overrides": {
        "single_node_tep": {
            "extra_args": ["--max-num-seqs", "1"],
            "hardware_overrides": {
                "hopper": {"extra_args": ["--max-num-seqs", "2"], "extra_env": {"H": "strategy"}},
                "h200": {"extra_args": ["--max-logprobs", "3"]},
            },
        },
        "single_node_dep": {"vllm_args": ["--max-num-seqs", "4"], "env": {"S": "dep"}},
    },
    "hardware_overrides": {
        "hopper": {"extra_args": ["--max-num-seqs", "5"], "extra_env": {"H": "hopper", "LEVEL": "hardware"}},
        "nvidia": {"extra_args": ["--max-num-seqs", "6"], "extra_env": {"H": "nvidia"}},
        "amd": {"extra_args": ["--max-num-seqs", "7"]},
    },
    "features": {"reasoning": {"args": ["--reasoning-parser", "x"]}},
}


@pytest.mark.parametrize(
    ("accelerator", "kwargs", "expected"),
    [
        # 100 GB fit into one chip of 141, not into one of 80.
        (H200, {}, "--seed 1 --block-size 16 --tensor-parallel-size 1 --max-num-seqs 5 --reasoning-parser x"),
        (H100, {}, "--seed 1 --block-size 16 --tensor-parallel-size 2 --max-num-seqs 5 --reasoning-parser x"),
        # Blackwell and Ada have no block of their own: NVIDIA's.
        (B200, {}, "--seed 1 --block-size 16 --tensor-parallel-size 1 --max-num-seqs 6 --reasoning-parser x"),
        (L40S, {}, "--seed 1 --block-size 16 --tensor-parallel-size 4 --max-num-seqs 6 --reasoning-parser x"),
        # All of AMD's generations are one to upstream.
        (MI300X, {}, "--seed 1 --block-size 16 --tensor-parallel-size 1 --max-num-seqs 7 --reasoning-parser x"),
        (MI355X, {}, "--seed 1 --block-size 16 --tensor-parallel-size 1 --max-num-seqs 7 --reasoning-parser x"),
        # No block at all.
        (XEON, {}, "--seed 1 --block-size 16 --tensor-parallel-size 1 --reasoning-parser x"),
        # The variant's block for exactly this hardware comes before the strategy, that for the generation after the
        # recipe's.
        (
            H200,
            {"variant": "exact"},
            "--seed 1 --block-size 32 --tensor-parallel-size 1 --max-num-seqs 9 --reasoning-parser x",
        ),
        (
            H100,
            {"variant": "exact"},
            "--seed 1 --block-size 16 --tensor-parallel-size 2 --max-num-seqs 9 --reasoning-parser x",
        ),
        # The strategy's block for the generation stands in place of the recipe's and the variant's; that for exactly
        # this hardware adds.
        (
            H200,
            {"strategy": "single_node_tep"},
            "--seed 1 --block-size 16 --enable-expert-parallel --tensor-parallel-size 8 --max-num-seqs 2 "
            "--max-logprobs 3 --reasoning-parser x",
        ),
        (
            H100,
            {"strategy": "single_node_tep", "variant": "exact"},
            "--seed 1 --block-size 16 --enable-expert-parallel --tensor-parallel-size 8 --max-num-seqs 2 "
            "--reasoning-parser x",
        ),
        # Without one for this generation the recipe's block comes after the strategy's words.
        (
            MI300X,
            {"strategy": "single_node_tep"},
            "--seed 1 --block-size 16 --enable-expert-parallel --tensor-parallel-size 8 --max-num-seqs 7 "
            "--reasoning-parser x",
        ),
        (
            XEON,
            {"strategy": "single_node_dep"},
            "--seed 1 --block-size 16 --enable-expert-parallel --data-parallel-size 1 --max-num-seqs 4 "
            "--reasoning-parser x",
        ),
    ],
)
def test_layers_lie_over_each_other_in_upstreams_order(accelerator, kwargs, expected):
    assert words(LAYERED, accelerator, **kwargs) == expected


@pytest.mark.parametrize(
    ("accelerator", "kwargs", "expected"),
    [
        (H200, {}, {"V": "variant", "H": "hopper", "LEVEL": "hardware"}),
        (B200, {}, {"LEVEL": "model", "V": "variant", "H": "nvidia"}),
        (XEON, {}, {"LEVEL": "model", "V": "variant"}),
        (H200, {"variant": "exact"}, {"V": "exact", "H": "hopper", "LEVEL": "hardware"}),
        (H200, {"strategy": "single_node_tep"}, {"LEVEL": "model", "V": "variant", "H": "strategy"}),
        (XEON, {"strategy": "single_node_dep"}, {"LEVEL": "model", "V": "variant", "S": "dep"}),
    ],
)
def test_variables_lie_over_each_other_by_name(accelerator, kwargs, expected):
    assert rendered(LAYERED, accelerator, **kwargs)[1] == expected


@pytest.mark.parametrize(
    ("variant", "override", "accelerator", "size"),
    [
        # A number for all hardware; never more than there are.
        ({"tp": 2}, None, H200, 2),
        ({"tp": 16}, None, H200, 8),
        # A map: exact hardware, then generation, then brand, then default.
        ({"tp": {"h200": 2, "hopper": 4, "nvidia": 8}}, None, H200, 2),
        ({"tp": {"h200": 2, "hopper": 4, "nvidia": 8}}, None, H100, 4),
        ({"tp": {"h200": 2, "hopper": 4, "nvidia": 8}}, None, L40S, 8),
        ({"tp": {"h200": 2, "default": 1}}, None, MI300X, 1),
        ({"tp": {"amd": 4}}, None, MI355X, 4),
        # The recipe's, where the variant says nothing for this hardware.
        ({"tp": {"h200": 2}}, 4, H100, 4),
        ({"tp": 2}, 4, H100, 2),
        ({}, {"mi300x": 2}, MI300X, 2),
        # By memory the smallest size that holds it. Upstream's builder takes all chips where one does not.
        ({"vram_minimum_gb": 140}, None, H200, 1),
        ({"vram_minimum_gb": 142}, None, H200, 2),
        ({"vram_minimum_gb": 283}, None, H200, 4),
        ({}, None, H200, 8),
    ],
)
def test_the_size_of_tensor_parallelism(variant, override, accelerator, size):
    recipe = {"model": {"model_id": "org/model"}, "variants": {"default": variant}}
    if override is not None:
        recipe["strategy_overrides"] = {"single_node_tp": {"tp": override}}
    assert words(recipe, accelerator) == f"--tensor-parallel-size {size}"


STRATEGIES = {
    "model": {"model_id": "org/model"},
    "variants": {"default": {"tp": 2}},
    "compatible_strategies": [
        "single_node_tp", "single_node_tep", "single_node_dep", "multi_node_tp", "multi_node_tep", "multi_node_dep",
        "multi_node_tp_pp", "multi_node_tp_dp",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "nodes", "expected"),
    [
        ("single_node_tp", 1, "--tensor-parallel-size 2"),
        # These two take all chips, whatever the recipe says of tensor parallelism alone.
        ("single_node_tep", 1, "--enable-expert-parallel --tensor-parallel-size 8"),
        ("single_node_dep", 1, "--enable-expert-parallel --data-parallel-size 8"),
        ("multi_node_tp", 2, "--tensor-parallel-size 16 {meet}"),
        (
            "multi_node_tep",
            3,
            "--enable-expert-parallel --tensor-parallel-size 24 {meet}",
        ),
        (
            "multi_node_tp_pp",
            2,
            "--tensor-parallel-size 8 --pipeline-parallel-size 2 {meet}",
        ),
        (
            "multi_node_dep",
            2,
            "--enable-expert-parallel --data-parallel-hybrid-lb --data-parallel-size 16 --data-parallel-size-local 8 "
            "--data-parallel-address head --data-parallel-rpc-port 9 --data-parallel-start-rank {start8}",
        ),
        (
            "multi_node_tp_dp",
            2,
            "--tensor-parallel-size 8 --data-parallel-size 2 --data-parallel-size-local 1 --data-parallel-address head "
            "--data-parallel-rpc-port 9 {served}",
        ),
    ],
)
def test_the_words_of_each_strategy_on_each_node(strategy, nodes, expected):
    for rank in range(nodes):
        text = expected.format(
            rank=rank,
            meet=f"--distributed-executor-backend mp --nnodes {nodes} --node-rank {rank} --master-addr head "
            f"--master-port 9{' --headless' if rank else ''}",
            start8=8 * rank,
            served=f"--data-parallel-start-rank {rank} --headless" if rank else "--api-server-count 1",
        )
        assert words(STRATEGIES, H200, strategy=strategy, nodes=Nodes(nodes, rank, "head", 9)) == text


FEATURES = {
    "model": {"model_id": "org/model"},
    "variants": {
        "default": {"tp": 1},
        "draft": {"tp": 1, "default_modes": {"speculation": "fused"}},
        "plain": {"tp": 1, "default_modes": {"speculation": "mtp"}},
    },
    "compatible_strategies": ["single_node_tp", "single_node_tep"],
    "features": {
        "tools": {
            "args": ["--enable-auto-tool-choice", "--tool-call-parser", "openai"],
            "hardware_overrides": {
                "hopper": {"args": ["--tool-call-parser", "hermes"]},
                "nvidia": {"args": ["--tool-call-parser", "mistral"]},
                "amd": {"args": []},
            },
        },
        "reasoning": {"args": ["--reasoning-parser", "x"], "strategies": ["single_node_tp"]},
        "speculation": {
            "default_mode": "mtp",
            "modes": {
                "eagle": {"args": ["--max-num-seqs", "1"], "hardware": {"amd": "unsupported"}},
                "mtp": {
                    "args": ["--max-num-seqs", "2"],
                    "hardware_overrides": {"b200": {"args": ["--max-num-seqs", "3"]}},
                },
                "fused": {"args": ["--max-num-seqs", "4"], "variants": ["draft"]},
            },
        },
    },
    "opt_in_features": ["speculation"],
    "hardware_opt_in_features": {"h200": ["reasoning"]},
}
ONE = "--tensor-parallel-size 1"


@pytest.mark.parametrize(
    ("accelerator", "kwargs", "expected"),
    [
        # An override stands in place of the feature's words, also an empty one.
        (H100, {}, f"{ONE} --tool-call-parser hermes --reasoning-parser x"),
        (B200, {}, f"{ONE} --tool-call-parser mistral --reasoning-parser x"),
        (MI300X, {}, f"{ONE} --reasoning-parser x"),
        (XEON, {}, f"{ONE} --enable-auto-tool-choice --tool-call-parser openai --reasoning-parser x"),
        # Off by default on one hardware only; for another strategy.
        (H200, {}, f"{ONE} --tool-call-parser hermes"),
        (
            XEON,
            {"strategy": "single_node_tep"},
            f"--enable-expert-parallel {ONE} --enable-auto-tool-choice --tool-call-parser openai",
        ),
        # The mode: the requested one, the variant's, the feature's, the first that is allowed.
        (H100, {"requested": ["speculation"]}, f"{ONE} --max-num-seqs 2"),
        (B200, {"requested": ["speculation"]}, f"{ONE} --max-num-seqs 3"),
        (H100, {"requested": ["speculation"], "modes": {"speculation": "eagle"}}, f"{ONE} --max-num-seqs 1"),
        # A variant that has its own mode switches the feature on.
        (MI300X, {"variant": "draft"}, f"{ONE} --reasoning-parser x --max-num-seqs 4"),
        (MI300X, {"variant": "plain"}, f"{ONE} --reasoning-parser x --max-num-seqs 2"),
        (MI300X, {"variant": "draft", "requested": []}, ONE),
        # In the recipe's order, whatever the order of the request.
        (
            XEON,
            {"requested": ["speculation", "tools"]},
            f"{ONE} --enable-auto-tool-choice --tool-call-parser openai --max-num-seqs 2",
        ),
    ],
)
def test_features_and_their_modes(accelerator, kwargs, expected):
    assert words(FEATURES, accelerator, **kwargs) == expected


@pytest.mark.parametrize(
    ("accelerator", "kwargs", "message"),
    [
        (MI300X, {"requested": ["speculation"], "modes": {"speculation": "eagle"}}, "'eagle' is not for mi300x"),
        (H100, {"requested": ["speculation"], "modes": {"speculation": "fused"}}, "'fused' is not for h100"),
        (
            H100,
            {"requested": ["reasoning"], "strategy": "single_node_tep"},
            "does not support the strategy single_node_tep",
        ),
    ],
)
def test_an_impossible_request_does_not_fall_back_in_silence(accelerator, kwargs, message):
    with pytest.raises(PlanError, match=message):
        words(FEATURES, accelerator, **kwargs)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["--max-num-seqs", "1"], ["--max-num-seqs=2"], "--max-num-seqs 2"),
        (["-tp", "1"], ["--tensor_parallel_size", "2"], "--tensor-parallel-size 2"),
        (["--enable-prefix-caching"], ["--no-enable-prefix-caching"], "--no-enable-prefix-caching"),
        (["--no-enable-prefix-caching"], ["--enable-prefix-caching"], "--enable-prefix-caching"),
        # The whole JSON replaces, one key adds.
        (["-cc", '{"level": 3}'], ["-cc", '{"mode": 3}'], """--compilation-config '{"mode": 3}'"""),
        (["-cc", '{"level": 3}'], ["-cc.mode=3"], """--compilation-config '{"level": 3, "mode": 3}'"""),
        # The last one's place counts.
        (["--seed", "1", "--max-num-seqs", "1"], ["--seed", "2"], "--max-num-seqs 1 --seed 2"),
    ],
)
def test_the_last_of_two_wins_in_whatever_spelling(first, second, expected):
    composed = compose([Layer("one", first), Layer("two", second)], TABLE, "recipe")
    assert shlex.join(to_argv({"model": "m", **composed.args}, TABLE)[3:]) == expected
