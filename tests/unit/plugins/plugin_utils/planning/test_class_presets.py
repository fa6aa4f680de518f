# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.recipe_schema import check_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.class_presets import (
    BY_CLASS,
    with_class_presets,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

RECIPE = """\
meta: {tasks: [TASK]}
model: {model_id: org/model, context_length: 4096}
"""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "org").mkdir()
    return tmp_path


def args(directory, preset, chip="h200", release="0.33.0", task="multimodal"):
    file = directory / "org" / f"{task}.yaml"
    file.write_text(RECIPE.replace("TASK", task))
    host = declared_accelerator(load_catalogue(), chip, 1)
    instance = {"recipe": f"org/{task}", "preset": preset}
    settings = {**SITE, "instances": {"a": instance}, "release": release, "recipe_path": [str(directory)]}
    return plan_host("h", host, settings)["a"]["args"]


@pytest.mark.parametrize(
    ("preset", "mode"), [("throughput", "throughput"), ("latency", "interactivity"), ("balanced", None)]
)
def test_a_model_that_writes_text_has_the_presets_of_its_class(directory, preset, mode):
    assert args(directory, preset).get("performance-mode") == mode


@pytest.mark.parametrize(("chip", "release"), [("h200", "0.13.0"), ("ascend_a2", "0.20.2")])
def test_where_vllm_has_no_mode_none_is_set(directory, chip, release):
    assert "performance-mode" not in args(directory, "latency", chip, release)


def test_the_recipe_s_own_presets_go_first():
    recipe = {"meta": {"tasks": ["text"]}, "presets": {"latency": {"tp": 4}, "mine": {}}}
    assert with_class_presets(recipe)["presets"] == {**BY_CLASS, "latency": {"tp": 4}, "mine": {}}
    gpt_oss = load_recipe("openai/gpt-oss-20b")
    assert with_class_presets(gpt_oss) is gpt_oss


@pytest.mark.parametrize("tasks", [["embedding"], ["embedding", "multimodal"]])
def test_a_model_of_embeddings_has_no_latency(tasks):
    recipe = {"meta": {"tasks": tasks}, "model": {"model_id": "org/model"}}
    assert set(with_class_presets(recipe)["presets"]) == {"throughput", "balanced"}


def test_an_embedding_with_a_preset_is_planned(directory):
    assert args(directory, "throughput", task="embedding")["performance-mode"] == "throughput"
    with pytest.raises(PlanError, match=r"has no preset 'latency'; known: balanced, throughput"):
        args(directory, "latency", task="embedding")


@pytest.mark.parametrize("meta", [{}, {"tasks": ["other"]}, {"tasks": []}])
def test_other_classes_have_none(meta):
    recipe = {"meta": meta, "model": {"model_id": "org/model"}}
    assert with_class_presets(recipe) is recipe


def test_they_are_presets_as_recipes_write_them():
    check_recipe({"model": {"model_id": "org/model"}, "presets": dict(BY_CLASS)}, "class_presets")
