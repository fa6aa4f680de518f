# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.option_tables import load_table, releases
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.families import (
    FEATURES,
    REASONING,
    TOOL_CALLING,
    with_family_features,
    with_family_guards,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama3_json"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_pythonic"),
        ("Qwen/Qwen2.5-32B-Instruct", "hermes"),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct", "hermes"),
        ("microsoft/Phi-4-mini-instruct", "phi4_mini_json"),
        ("openbmb/MiniCPM5-1B", "minicpm5"),
        # Base models, and families with another form or none.
        ("meta-llama/Llama-3.1-8B", None),
        ("Qwen/Qwen2.5-32B", None),
        ("Qwen/Qwen2.5-VL-72B-Instruct", None),
        ("org/not-llama-3.1-instruct", None),
    ],
)
def test_the_parser_of_a_family(model, parser):
    assert TOOL_CALLING.parser_of(model) == parser


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("ByteDance-Seed/Seed-OSS-36B-Instruct", "seed_oss"),
        ("ByteDance-Seed/Seed-OSS-36B-Base", None),
        ("baidu/ERNIE-4.5-VL-28B-A3B-PT", "ernie45"),
        ("baidu/ERNIE-4.5-21B-A3B-Thinking", "ernie45"),
        ("baidu/ERNIE-4.5-21B-A3B-PT", None),
        ("ibm-granite/granite-3.2-2b-instruct", "granite"),
        ("tencent/Hunyuan-A13B-Instruct", "hunyuan_a13b"),
        ("meta-llama/Llama-3.3-70B-Instruct", None),
    ],
)
def test_the_reasoning_parser_of_a_family(model, parser):
    assert REASONING.parser_of(model) == parser


def test_every_parser_is_one_of_the_newest_release():
    flags = load_table(releases()[-1]).flags
    for feature in FEATURES:
        known = flags[feature.flag.removeprefix("--")]["known"]
        assert {parser for _pattern, parser in feature.parsers} <= set(known)


def test_one_family_may_have_both():
    recipe = {"model": {"model_id": "tencent/Hunyuan-A13B-Instruct"}}
    assert with_family_features(recipe)["opt_in_features"] == ["tool_calling", "reasoning"]


@pytest.mark.parametrize(
    "more",
    [
        {"features": {"tool_calling": {"args": []}}},
        {"model": {"base_args": ["--tool-call-parser", "pythonic"]}},
        {"model": {"base_args": ["--tool_call_parser=pythonic"]}},
        {"model": {"model_id": "org/other"}},
    ],
)
def test_what_the_recipe_says_goes_first(more):
    model = {"model_id": "meta-llama/Llama-3.1-8B-Instruct", **more.get("model", {})}
    recipe = {**more, "model": model}
    assert with_family_features(recipe) is recipe


@pytest.mark.parametrize(("features", "parser"), [(["tool_calling"], "llama3_json"), (None, None)])
def test_the_feature_is_set_on_request_only(tmp_path, features, parser):
    (tmp_path / "org").mkdir()
    text = "model: {model_id: org/Llama-3.1-8B-Instruct, context_length: 4096}\n"
    (tmp_path / "org" / "model.yaml").write_text(text)
    instance = {"recipe": "org/model", **({"features": features} if features else {})}
    settings = {**SITE, "instances": {"a": instance}, "release": "0.33.0", "recipe_path": [str(tmp_path)]}
    args = plan_host("h", declared_accelerator(load_catalogue(), "h200", 1), settings)["a"]["args"]
    assert (args.get("tool-call-parser"), args.get("enable-auto-tool-choice")) == (parser, parser and True)


def test_guards_of_the_family_follow_those_of_the_recipe():
    families = {
        "guards": [{"models": ["model-.*"], "warn": "w"}],
        "known_issues": [{"models": ["other"], "symptom": "s"}],
    }
    recipe = {"guards": [{"refuse": "r"}]}
    assert with_family_guards(recipe, "org/Model-7B", families)["guards"] == [{"refuse": "r"}, *families["guards"]]
    assert "known_issues" not in with_family_guards(recipe, "org/Model-7B", families)
    assert recipe == {"guards": [{"refuse": "r"}]}


@pytest.mark.parametrize("weights", ["org/a-model-7b", "org/model", "model-/x"])
def test_the_whole_name_counts(weights):
    assert with_family_guards({}, weights, {"guards": [{"models": ["model-.*"], "warn": "w"}]}) == {}


@pytest.mark.parametrize("image", ["", "nvcr.io/nvidia/vllm:25.11-py3"])
def test_the_cuda_of_a_release_says_nothing_of_an_image_of_somebody_else(image):
    settings = {**SITE, "instances": {"a": {"recipe": "openai/gpt-oss-20b"}}, "release": "0.17.1", "image": image}
    accelerator = declared_accelerator(load_catalogue(), "gb10", 1)
    if image:
        assert plan_host("h", accelerator, settings)["a"]["image"] == image
    else:
        with pytest.raises(PlanError, match="built with CUDA 12"):
            plan_host("h", accelerator, settings)


@pytest.mark.parametrize(("release", "refused"), [("0.23.0", False), ("0.33.0", True)])
def test_a_quantization_is_refused_where_the_release_has_it_no_longer(release, refused):
    instance = {"recipe": "openai/gpt-oss-20b", "args": {"quantization": "gptq_marlin"}}
    settings = {**SITE, "instances": {"a": instance}, "release": release}
    try:
        plan_host("h", declared_accelerator(load_catalogue(), "mi300x", 1), settings)
        text = ""
    except PlanError as exc:
        text = str(exc)
    assert ("on NVIDIA's chips only" in text) is refused, text
