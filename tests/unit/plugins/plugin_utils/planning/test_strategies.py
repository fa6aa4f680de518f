# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.divisions import Parallelism
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.strategies import (
    Nodes,
    choose_strategy,
    compatible,
    named_size,
    parallelism,
    sizes,
    tensor_size,
)

H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, 141 * 1024)
MI300X = Accelerator("mi300x", "rocm", "gfx942", "amd", 8, 192 * 1024)
CPU = Accelerator("cpu", "cpu", "cpu", "cpu", 1)


def recipe(*listed, **sections):
    return {"model": {"model_id": "org/model"}, "compatible_strategies": list(listed), **sections}


def chosen(a_recipe, requested=None, nodes=1):
    return choose_strategy(a_recipe, H200, requested, nodes, "vllm_instances.chat")


@pytest.mark.parametrize(
    ("gates", "offered"),
    [
        ({}, ["single_node_tp", "single_node_tep"]),
        ({"single_node_tep": {"hopper": "unsupported"}}, ["single_node_tp"]),
        ({"single_node_tep": {"amd": "unsupported"}}, ["single_node_tp", "single_node_tep"]),
        # One that is not listed is granted to the hardware that is named.
        ({"single_node_dep": {"h200": "supported"}}, ["single_node_tp", "single_node_tep", "single_node_dep"]),
        ({"single_node_dep": {"b200": "supported"}}, ["single_node_tp", "single_node_tep"]),
        # Any other word grants nothing, and a name is offered once.
        ({"single_node_dep": {"h200": "untested"}}, ["single_node_tp", "single_node_tep"]),
        ({"single_node_tep": {"h200": "supported"}}, ["single_node_tp", "single_node_tep"]),
        # Keys without a value.
        ({"single_node_tep": None, "single_node_dep": None}, ["single_node_tp", "single_node_tep"]),
        (None, ["single_node_tp", "single_node_tep"]),
    ],
)
def test_strategies_that_a_recipe_offers_here(gates, offered):
    assert compatible(recipe("single_node_tp", "single_node_tep", strategy_hardware=gates), H200) == offered


def test_a_recipe_without_strategies_is_served_with_tensors_split():
    assert compatible({"model": {}}, H200) == ["single_node_tp"]


@pytest.mark.parametrize(
    ("listed", "default", "nodes", "strategy"),
    [
        (["single_node_tep", "single_node_tp"], None, 1, "single_node_tp"),
        (["single_node_tep", "single_node_tp"], "single_node_tep", 1, "single_node_tep"),
        (["single_node_tep", "single_node_tp"], "single_node_dep", 1, "single_node_tp"),
        (["single_node_dep"], None, 1, "single_node_dep"),
        (["single_node_tp", "multi_node_tep", "multi_node_tp"], None, 2, "multi_node_tp"),
        (["single_node_tp", "multi_node_tep", "multi_node_tp"], "single_node_tep", 2, "multi_node_tep"),
    ],
)
def test_what_a_recipe_prefers(listed, default, nodes, strategy):
    assert chosen(recipe(*listed, default_strategy=default), nodes=nodes) == strategy


def test_a_request_goes_before_the_recipe_s_preference():
    assert chosen(recipe("single_node_tp", "single_node_dep"), "single_node_dep") == "single_node_dep"


@pytest.mark.parametrize(
    ("listed", "requested", "nodes", "message"),
    [
        (
            ["single_node_tp"],
            "single_node_tpp",
            1,
            "strategy: recipe org/model does not list 'single_node_tpp' for h200; nearest: 'single_node_tp'",
        ),
        (
            ["single_node_tp"],
            "single_node_dep",
            1,
            "strategy: recipe org/model does not list 'single_node_dep' for h200; nearest: 'single_node_tp'",
        ),
        (
            ["single_node_xp"],
            "single_node_xp",
            1,
            "strategy: 'single_node_xp' is unknown; nearest: 'single_node_tp'",
        ),
        (
            ["multi_node_tp"],
            "multi_node_tp",
            1,
            "nodes: multi_node_tp spans hosts; expected a list of two or more hosts of the inventory",
        ),
        (
            ["single_node_tp"],
            "single_node_tp",
            2,
            "nodes: single_node_tp is for one host; expected no nodes, or a multi_node strategy",
        ),
        (
            ["single_node_tp"],
            None,
            2,
            "nodes: single_node_tp is for one host; expected no nodes, or a multi_node strategy",
        ),
        (
            ["pd_cluster"],
            None,
            1,
            "strategy: pd_cluster needs the hosts of both sides; expected prefill and decode, two lists of hosts of "
            "the inventory",
        ),
    ],
)
def test_a_strategy_that_cannot_be(listed, requested, nodes, message):
    with pytest.raises(PlanError) as caught:
        chosen(recipe(*listed), requested, nodes)
    assert str(caught.value) == f"vllm_instances.chat.{message}"


def test_a_size_for_this_very_chip_offers_tensor_parallelism():
    # DeepSeek-V4-Flash in W8A8: nothing but DEP for Ascend, and TP 8 for Atlas A3 (upstream's recipe of 2026-09-29).
    gates = {"single_node_tp": {"hopper": "unsupported"}}
    listed = recipe("single_node_tp", "single_node_dep", strategy_hardware=gates)
    assert compatible(listed, H200, {"h200": 8}) == ["single_node_dep", "single_node_tp"]
    assert compatible(listed, H200, {"hopper": 8}) == compatible(listed, H200, 8) == ["single_node_dep"]
    assert compatible({}, H200, {"h200": 8}) == ["single_node_tp"]
    assert choose_strategy(listed, H200, None, 1, "chat", {"h200": 8}) == "single_node_tp"


def test_a_recipe_that_lists_no_strategy_for_this_hardware():
    gates = {"single_node_tp": {"hopper": "unsupported"}}
    with pytest.raises(PlanError) as caught:
        chosen(recipe("single_node_tp", strategy_hardware=gates), "single_node_tp")
    assert str(caught.value) == (
        "vllm_instances.chat.strategy: recipe org/model does not list 'single_node_tp' for h200; "
        "it lists none for this hardware"
    )


POWERS = [1, 2, 4, 8]
NEITHER = "which this host or this model cannot have"


@pytest.mark.parametrize(
    ("accelerator", "variant", "preset", "override", "candidates", "size"),
    [
        # The preset's, the variant's, the recipe's, in this order; each by the most exact name.
        (H200, {"tp": 4}, {"tp": 2}, 8, POWERS, (2, "tp of the recipe's preset")),
        (H200, {"tp": 4}, {}, 8, POWERS, (4, "tp of the recipe's variant")),
        (H200, {}, {}, 8, POWERS, (8, "tp of the recipe's strategy_overrides")),
        (H200, {"tp": {"h200": 1, "hopper": 2}}, {"tp": {"amd": 8}}, None, POWERS, (1, "tp of the recipe's variant")),
        (MI300X, {"tp": {"amd": 8, "default": 2}}, {}, None, POWERS, (8, "tp of the recipe's variant")),
        # A smaller host, and a model that cannot be divided so, get the next smaller size.
        (H200, {"tp": 8}, {}, None, [1, 2, 4], (4, f"tp of the recipe's variant is 8, {NEITHER}")),
        (H200, {"tp": 5}, {}, None, POWERS, (4, f"tp of the recipe's variant is 5, {NEITHER}")),
        # Nobody knows a CPU's NUMA nodes here.
        (CPU, {"tp": 2}, {}, None, [1], (2, "tp of the recipe's variant")),
    ],
)
def test_the_size_that_a_recipe_names(accelerator, variant, preset, override, candidates, size):
    a_recipe = recipe("single_node_tp", strategy_overrides={"single_node_tp": {"tp": override}})
    assert tensor_size(a_recipe, variant, preset, accelerator, candidates, lambda _size: True) == size


@pytest.mark.parametrize(
    ("holds", "size"),
    [
        (lambda size: size >= 1, (1, "the smallest size that holds the model")),
        (lambda size: size >= 3, (4, "the smallest size that holds the model")),
        (lambda _size: None, (8, "the largest size: the recipe or the catalogue does not say what is needed")),
        (lambda _size: False, (8, "the largest size, because the model needs more memory than a smaller one has")),
    ],
)
def test_without_a_named_size_the_smallest_that_holds_the_model(holds, size):
    assert tensor_size(recipe("single_node_tp"), {}, {}, H200, POWERS, holds) == size


@pytest.mark.parametrize(
    ("strategy", "nodes", "expected"),
    [
        ("single_node_tp", 1, Parallelism(tensor=4)),
        ("single_node_tep", 1, Parallelism(tensor=4, experts=True)),
        ("single_node_dep", 1, Parallelism(data=4, experts=True)),
        ("single_node_dpa_tp", 1, Parallelism(data=4)),
        ("multi_node_tp", 3, Parallelism(tensor=12)),
        ("multi_node_tep", 3, Parallelism(tensor=12, experts=True)),
        ("multi_node_tp_pp", 3, Parallelism(tensor=4, pipeline=3)),
        ("multi_node_tp_dp", 3, Parallelism(tensor=4, data=3)),
        ("multi_node_dep", 3, Parallelism(data=12, experts=True)),
    ],
)
def test_sizes_of_a_strategy_over_all_hosts(strategy, nodes, expected):
    assert parallelism(strategy, 4, nodes) == expected


def test_the_size_that_a_recipe_names_for_a_strategy_that_takes_all_chips():
    named = recipe("single_node_tep", strategy_overrides={"single_node_tep": {"tp": {"h200": 4}}})
    assert named_size(named, "single_node_tep", H200, lambda size: size < 8) == 4
    assert named_size(named, "single_node_tep", MI300X, lambda _size: False) is None
    for tp in (0, -4, "4", None):
        wrong = recipe("single_node_tep", strategy_overrides={"single_node_tep": {"tp": {"h200": tp}}})
        assert named_size(wrong, "single_node_tep", H200, lambda _size: False) is None
    for overrides in (None, {}, {"single_node_tep": None}):
        silent = recipe("single_node_tep", strategy_overrides=overrides)
        assert named_size(silent, "single_node_tep", H200, lambda _size: False) is None
    anywhere = recipe("single_node_tep", strategy_overrides={"single_node_tep": {"tp": {"default": 4}}})
    assert named_size(anywhere, "single_node_tep", H200, lambda size: size < 4) == 4
    assert named_size(anywhere, "single_node_tep", H200, lambda size: size < 8) is None


HEAD, FOLLOWER = Nodes(2, 0, "10.0.0.1", 9), Nodes(2, 1, "10.0.0.1", 9)
MEET = "--distributed-executor-backend mp --nnodes 2 --node-rank {} --master-addr 10.0.0.1 --master-port 9"


@pytest.mark.parametrize(
    ("strategy", "nodes", "words", "chips", "tensor"),
    [
        ("single_node_tp", Nodes(), "--tensor-parallel-size 2", 2, 2),
        ("single_node_tep", Nodes(), "--enable-expert-parallel --tensor-parallel-size 8", 8, 8),
        ("single_node_dep", Nodes(), "--enable-expert-parallel --data-parallel-size 8", 8, 1),
        ("single_node_dpa_tp", Nodes(), "--tensor-parallel-size 1 --data-parallel-size 8", 8, 1),
        (
            "multi_node_tp",
            HEAD,
            f"--tensor-parallel-size 16 {MEET.format(0)}",
            8,
            16,
        ),
        (
            "multi_node_tp",
            FOLLOWER,
            f"--tensor-parallel-size 16 {MEET.format(1)} --headless",
            8,
            16,
        ),
        (
            "multi_node_tep",
            FOLLOWER,
            f"--enable-expert-parallel --tensor-parallel-size 16 {MEET.format(1)} --headless",
            8,
            16,
        ),
        (
            "multi_node_tp_pp",
            HEAD,
            f"--tensor-parallel-size 8 --pipeline-parallel-size 2 {MEET.format(0)}",
            8,
            8,
        ),
        (
            "multi_node_dep",
            HEAD,
            "--enable-expert-parallel --data-parallel-hybrid-lb --data-parallel-size 16 --data-parallel-size-local 8 "
            "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 9 --data-parallel-start-rank 0",
            8,
            1,
        ),
        (
            "multi_node_dep",
            FOLLOWER,
            "--enable-expert-parallel --data-parallel-hybrid-lb --data-parallel-size 16 --data-parallel-size-local 8 "
            "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 9 --data-parallel-start-rank 8",
            8,
            1,
        ),
        (
            "multi_node_tp_dp",
            FOLLOWER,
            "--tensor-parallel-size 8 --data-parallel-size 2 --data-parallel-size-local 1 "
            "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 9 --data-parallel-start-rank 1 --headless",
            8,
            8,
        ),
        (
            "multi_node_tp_dp",
            HEAD,
            "--tensor-parallel-size 8 --data-parallel-size 2 --data-parallel-size-local 1 "
            "--data-parallel-address 10.0.0.1 --data-parallel-rpc-port 9 "
            "--api-server-count 1",
            8,
            8,
        ),
    ],
)
def test_words_of_a_strategy(strategy, nodes, words, chips, tensor):
    found = sizes(strategy, 2, 8, nodes, "why")
    assert " ".join(found.words) == words
    assert (found.chips, found.tensor, found.because) == (chips, tensor, "why")
