# SPDX-License-Identifier: GPL-3.0-or-later
"""An adopted entry and its plan. tests/parity/test_adopt.py asks vLLM's own parser."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.comparison import compare, recipe_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.adopt.entry import Adopted
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import Bench, TrialError

BENCH = Bench(load_catalogue(), "0.33.0", {"recipe_path": []})


def adopted(model, **args):
    return Adopted(model, {"replicas": 1, "port": 8000, "args": {"tensor-parallel-size": 1, **args}}, [])


def test_what_the_recipe_adds_is_null():
    found = compare(adopted("openai/gpt-oss-20b"), BENCH, "h100", "0.33.0")
    assert found.instance["recipe"] == "openai/gpt-oss-20b" and found.instance["features"] == []
    assert found.removed == {"env.VLLM_WORKER_MULTIPROC_METHOD": "fork"}
    assert found.instance["env"] == {"VLLM_WORKER_MULTIPROC_METHOD": None}
    assert [flag for flag, _because in found.added] == ["--shutdown-timeout", "--fail-on-environ-validation"]
    assert "VLLM_WORKER_MULTIPROC_METHOD" not in found.plan["env"]


def test_other_weights_of_a_recipe_are_its_variant():
    assert recipe_of("unsloth/gpt-oss-120b-BF16", []) == {"recipe": "openai/gpt-oss-120b", "variant": "bf16"}


def test_a_model_without_a_recipe_gets_the_shortest_one():
    found = compare(adopted("Qwen/Qwen3-8B", seed=1), BENCH, "h100:2", "0.33.0")
    assert found.recipe == "model:\n  model_id: Qwen/Qwen3-8B\n" and found.carried == "0.33.0"
    assert "features" not in found.instance and found.plan["args"]["seed"] == 1 and found.host == "2 x h100"
    assert compare(adopted("someone/model"), BENCH, "h100", "0.33.0").carried == ""


def test_why_there_is_no_plan_is_said():
    found = compare(adopted("openai/gpt-oss-20b", **{"tensor-parallel-size": 16}), BENCH, "h100:2", "0.33.0")
    assert found.plan is None and "more chips requested" in found.problem


def test_a_site_may_have_a_recipe_with_more(tmp_path):
    path = tmp_path / "o" / "m.yaml"
    path.parent.mkdir()
    path.write_text(
        "model: {model_id: o/m, base_args: [--seed, '7', --trust-remote-code], base_env: {LD_PRELOAD: /x.so}}\n"
    )
    found = compare(
        adopted("o/m"), Bench(load_catalogue(), "0.33.0", {"recipe_path": [str(tmp_path)]}), "h100", "0.33.0"
    )
    assert found.instance["args"] == {"tensor-parallel-size": 1, "seed": None, "trust-remote-code": None}
    assert found.instance["env"] == {"LD_PRELOAD": None} and found.plan


def test_an_unknown_host_is_named():
    with pytest.raises(TrialError, match="h1000"):
        compare(adopted("o/m"), BENCH, "h1000", "0.33.0")
