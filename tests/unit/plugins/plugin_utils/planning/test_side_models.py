# SPDX-License-Identifier: GPL-3.0-or-later
"""Draft models, adapters and tokenizers: found by their names, and given to vLLM by their paths."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import show_value
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.side_models import (
    adapter_names,
    adapter_problems,
    draft_problems,
    paths_in,
    side_models,
    with_paths,
)

from tests.fakes.plans import plan, recipe

ARGS = {
    "speculative-config": {"model": "org/draft", "method": "eagle3"},
    "lora-modules": [
        "sql=org/lora-sql",
        '{"name": "fr", "path": "org/lora-fr"}',
        {"name": "x", "path": "org/lora-sql"},
    ],
    "tokenizer": "org/tokens",
    "max-model-len": 4096,
}


def path_of(name):
    return None if name == "org/lora-fr" else f"/srv/models/{name}"


def test_each_repository_is_found_once():
    assert side_models(ARGS) == ["org/draft", "org/lora-sql", "org/lora-fr", "org/tokens"]
    assert side_models({"speculative-config": {"method": "mtp"}, "lora-modules": "one=org/lora"}) == ["org/lora"]
    assert side_models({}) == side_models({"speculative-config": None, "lora-modules": [], "tokenizer": None}) == []


@pytest.mark.parametrize("value", ["/srv/x/y", "./a/b", "name", "a/b/c", "", 5])
def test_anything_else_is_no_repository(value):
    assert side_models({"tokenizer": value, "lora-modules": [f"a={value}"]}) == []
    assert with_paths({"tokenizer": value}, path_of) == {"tokenizer": value}


def test_requests_choose_an_adapter_by_its_name():
    assert adapter_names(ARGS) == ["sql", "fr", "x"]
    assert adapter_names({"lora-modules": "sql=org/lora"}) == ["sql"]
    for odd in (None, "", "x", "{", "{}", [], [None, 5, "=y", {"path": "/p"}], 5):
        assert adapter_names({"lora-modules": odd}) == []


def test_pinned_ones_get_their_path():
    found = with_paths(ARGS, path_of)
    assert found["speculative-config"] == {"model": "/srv/models/org/draft", "method": "eagle3"}
    assert found["lora-modules"] == [
        "sql=/srv/models/org/lora-sql",
        '{"name": "fr", "path": "org/lora-fr"}',
        {"name": "x", "path": "/srv/models/org/lora-sql"},
    ]
    assert found["tokenizer"] == "/srv/models/org/tokens" and found["max-model-len"] == 4096
    assert paths_in(found) == ["/srv/models/org/draft", "/srv/models/org/lora-sql", "/srv/models/org/tokens"]
    assert side_models(found) == ["org/lora-fr"]


@pytest.mark.parametrize("entry", ["{broken", "no path", {"name": "x"}])
def test_what_vllm_would_refuse_is_left_to_its_parser(entry):
    assert with_paths({"lora-modules": [entry]}, path_of) == {"lora-modules": [entry]}


def test_a_plan_fetches_and_mounts_what_it_names():
    manifest = {"revision": "d" * 40, "files": {"adapter_model.safetensors": {"size": 1, "sha256": "0" * 64}}}
    manifests = {name: {**manifest, "repository": name} for name in ("org/model", "org/lora")}
    asked = {"args": {"lora-modules": ["sql=org/lora"]}, "runtime": "container"}
    found = plan(asked, a_recipe=recipe(), manifests=manifests)
    path = "/srv/models/org/lora/" + "d" * 40
    assert found.models == ["org/model", "org/lora"] and found.config["lora-modules"] == [f"sql={path}"]
    assert f"{path}:{path}:ro" in found.mounts


def test_a_draft_model_of_its_own_flag_is_one_too():
    assert side_models({"spec-model": "org/draft", "spec-method": "eagle3"}) == ["org/draft"]
    assert with_paths({"spec-model": "org/draft"}, {"org/draft": "/srv/d"}.get) == {"spec-model": "/srv/d"}


@pytest.mark.parametrize(
    "entry", [2, "viel", "law=", "=/srv/law", {}, {"a": 1}, {"name": "law"}, '{"name": "law"}', "{", None]
)
def test_an_adapter_without_a_name_or_a_path_is_refused(entry):
    assert len(adapter_problems({"lora-modules": entry})) == (entry is not None)
    right = [{"name": "law", "path": "/srv/law"}, '{"name": "law", "path": "/srv/law"}', "law=/srv/law"]
    assert adapter_problems({"lora-modules": right}) == adapter_problems({"lora-modules": right[2]}) == []
    assert adapter_problems({"lora-modules": [*right, entry]}) == [
        f"--lora-modules: expected NAME=PATH, or a mapping with name and path, found {show_value(entry)}"
    ]


@pytest.mark.parametrize(
    ("args", "architecture", "count"),
    [
        ({"speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}, "LlamaForCausalLM", 1),
        ({"speculative-config": {"method": "qwen3_5_mtp"}}, "Qwen3MoeForCausalLM", 1),
        ({"spec-method": "mtp"}, "GptOssForCausalLM", 1),
        ({"speculative-config": {"method": "mtp"}}, "DeepseekV3ForCausalLM", 0),
        ({"speculative-config": {"method": "mtp", "model": "org/draft"}}, "LlamaForCausalLM", 0),
        ({"speculative-config": {"method": "mtp"}, "spec-model": "org/draft"}, "LlamaForCausalLM", 0),
        ({"speculative-config": {"method": "mtp"}, "model-impl": "transformers"}, "LlamaForCausalLM", 0),
        ({"speculative-config": {"method": "mtp"}, "hf-overrides": {"a": 1}}, "LlamaForCausalLM", 0),
        ({"speculative-config": {"method": "ngram"}}, "LlamaForCausalLM", 0),
        ({"speculative-config": "mtp"}, "LlamaForCausalLM", 0),
        ({}, "LlamaForCausalLM", 0),
    ],
)
def test_a_model_without_layers_that_draft_does_not_draft_for_itself(args, architecture, count):
    found = list(draft_problems(args, {"architectures": [architecture]}))
    assert len(found) == count
    assert all(f"mtp, and {architecture} has no layers that draft" in problem for problem in found)
    assert not list(draft_problems(args, {}))
