# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.host_plans import plan_host
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import SITE
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.families import (
    tool_parser_of,
    with_family_features,
)


@pytest.mark.parametrize(
    ("model", "parser"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3_json"),
        ("nvidia/Llama-3.3-70B-Instruct-FP8", "llama3_json"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4_pythonic"),
        ("Qwen/Qwen2.5-32B-Instruct", "hermes"),
        ("Qwen/Qwen3-VL-235B-A22B-Instruct", "hermes"),
        ("microsoft/Phi-4-mini-instruct", "phi4_mini_json"),
        # Base models, and families with another form or none.
        ("meta-llama/Llama-3.1-8B", None),
        ("Qwen/Qwen2.5-32B", None),
        ("Qwen/Qwen2.5-VL-72B-Instruct", None),
        ("org/not-llama-3.1-instruct", None),
    ],
)
def test_the_parser_of_a_family(model, parser):
    assert tool_parser_of(model) == parser


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
