# SPDX-License-Identifier: GPL-3.0-or-later
"""What is chosen for an instance before its layers are combined."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.choices import (
    choose,
    facts_of,
    pinned_name,
    repository_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError, UnknownNameError

from tests.fakes.plans import CPU, GIB, H200, MANIFESTS, SITE, library, recipe

SMALL = replace(CPU, count=8, memory_mib=1 << 20)


def chosen(requested=None, accelerator=H200, a_recipe=None, host="h1", **where_from):
    asked = {"recipe": "org/model", **(requested or {})}
    return choose(host, "chat", asked, accelerator, SITE, library(a_recipe or recipe(), **where_from))


def refusal(*args, **more):
    with pytest.raises(PlanError) as caught:
        chosen(*args, **more)
    return str(caught.value)


def test_the_weights_are_the_variants_own_at_the_revision_of_the_instance():
    assert repository_of({"model": {"model_id": "a/b"}}, {}) == "a/b"
    assert pinned_name({"model": {"model_id": "a/b"}}, {"model_id": "a/c"}, {"revision": "r1"}) == "a/c@r1"
    assert (chosen().model, chosen().pinned, chosen().where) == ("org/model", "org/model", "vllm_instances.chat")


@pytest.mark.parametrize(
    ("args", "chips"),
    [
        ({}, 2), ({"tensor-parallel-size": 4}, 4), ({"tensor-parallel-size": "4"}, 4),
        ({"tensor-parallel-size": None}, 1),
        ({"pipeline-parallel-size": 2}, 4), ({"data-parallel-size": 3}, 6),
        # Ranks on other hosts need no chips here.
        ({"data-parallel-size": 8, "data-parallel-size-local": 2}, 4), ({"prefill-context-parallel-size": 2}, 4),
    ],
)  # fmt: skip
def test_sizes_among_its_own_arguments_set_the_number_of_chips(args, chips):
    found = chosen({"args": args})
    assert found.demand.chips == found.choice.sizes.chips == chips


@pytest.mark.parametrize("value", [0, -1, "two", 1.5, "1" * 19, True, [2]])
def test_a_size_that_is_no_number_from_1_is_named(value):
    assert refusal({"args": {"tensor-parallel-size": value}}).startswith(
        "vllm_instances.chat.args.tensor-parallel-size: "
    )


def test_a_size_of_the_variant_for_this_hardware_goes_before_its_others():
    variants = {"default": {"tp": 2, "hardware_overrides": {"h200": {"tp": 4, "extra_args": ["--a", "1"]}}}}
    assert chosen(a_recipe=recipe(variants=variants)).choice.sizes.tensor == 4
    assert chosen(a_recipe=recipe(variants=variants), accelerator=SMALL).choice.sizes.tensor == 2


def test_chips_of_the_instance_bound_its_size():
    found = chosen({"chips": [0, 1], "args": {}}, a_recipe=recipe(variants={"default": {"tp": 4}}))
    assert found.choice.sizes.tensor <= 2 and found.demand.pinned == (0, 1) and chosen().demand.pinned is None


def test_an_environment_takes_the_lock_of_a_python_and_an_image_none():
    found = chosen({"runtime": "venv"}, accelerator=replace(SMALL, pythons=("/usr/bin/python3.12",)))
    assert found.runtime == "venv" and found.stack["interpreter"] == "/usr/bin/python3", "its lock is for any Python"
    assert "interpreter" not in chosen().stack


@pytest.mark.parametrize(
    ("preset", "presets", "reason"),
    [
        ("fast", None, "found 'fast', but recipe org/model has no presets; remove preset and set args"),
        ("fats", {"fast": {}}, "recipe org/model has no preset 'fats'; nearest: 'fast'"),
        ("fast", {"fast": {"points": [1]}}, "holds measured points for one system"),
        ("fast", {"fast": {"workload": "x"}}, "is not a preset of this collection"),
    ],
)  # fmt: skip
def test_a_preset_is_one_of_the_recipe(preset, presets, reason):
    sections = {"presets": presets} if presets else {}
    found = refusal({"preset": preset}, a_recipe=recipe(**sections)).replace('"', "'")
    assert found.startswith("vllm_instances.chat.preset: ") and reason in found
    assert chosen({"preset": "fast"}, a_recipe=recipe(presets={"fast": None})).choice.preset == "fast"


def test_a_host_that_is_not_among_its_nodes_is_named():
    nodes = {"nodes": ["h1", "h2"], "strategy": "multi_node_tp"}
    spanning = recipe(compatible_strategies=["single_node_tp", "multi_node_tp"])
    assert "vllm_instances.chat.nodes: h3 is not among the nodes h1, h2" in refusal(nodes, a_recipe=spanning, host="h3")
    found = chosen(nodes, a_recipe=spanning, host="h2")
    assert found.group.rank == 1 and found.demand.spans and found.choice.sizes.tensor == 16


def test_a_file_that_nobody_has_is_named_by_its_key():
    files = library(recipe())

    def missing(_name):
        raise UnknownNameError("no directory has it")

    for key, lacking in (
        ("vllm_instances.chat.recipe", replace(files, recipe=missing)),
        ("vllm_release", replace(files, release=missing)),
    ):  # fmt: skip
        with pytest.raises(PlanError, match=rf"\A{key}: no directory has it"):
            choose("h1", "chat", {"recipe": "x"}, H200, SITE, lacking)
    with pytest.raises(PlanError, match=r"\Avllm_instances\.chat\.release: "):
        choose("h1", "chat", {"recipe": "x", "release": "9"}, H200, SITE, replace(files, release=missing))


def test_rules_see_the_release_the_hardware_and_the_choices():
    facts = facts_of(chosen(), H200)
    assert (facts["vllm"], facts["tensor_parallel_size"], facts["count"], facts["memory_gib"]) == ("2.0.0", 2, 8, 141)
    assert (facts["stack"], facts["runtime"], facts["strategy"], facts["features"]) == (
        "cuda", "container", "single_node_tp", [],
    )  # fmt: skip
    assert "h200" in facts["accelerator"] and "hopper" in facts["generation"]
    assert facts_of(chosen(), replace(H200, memory_mib=None))["memory_gib"] is None


def test_a_model_that_the_named_size_cannot_hold_takes_more_chips():
    large = {"org/model": {**MANIFESTS["org/model"], "files": {"a.safetensors": {"size": 500 * GIB}}}}
    variants = {"default": {"vram_minimum_gb": 500}}
    assert chosen(a_recipe=recipe(variants=variants), manifests=large).choice.sizes.tensor >= 4
    assert chosen(a_recipe=recipe(variants=variants), manifests={}).choice.sizes.tensor >= 4
