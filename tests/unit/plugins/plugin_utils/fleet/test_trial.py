# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.files import load_recipe
from ansible_collections.baremetal.inference.plugins.plugin_utils.fleet.trial import (
    Bench,
    TrialError,
    models_of,
    tokenizers_of,
    trial_table,
)

CATALOGUE = load_catalogue()
BENCH = Bench(CATALOGUE, "")
NAME = "openai/gpt-oss-120b"
RECIPE = load_recipe(NAME)


def trials(*wanted):
    return BENCH.try_recipe(NAME, RECIPE, BENCH.hosts(wanted, [RECIPE]))


def test_each_variant_is_planned_on_each_host():
    found = {
        (trial.variant, trial.accelerator.model): trial.as_dict()
        for trial in trials("h200", "h100:1", "ascend_a3", "mi355x:4")
    }
    assert set(found) == {
        (variant, chip)
        for variant in ("default", "amd_fp8", "bf16")
        for chip in ("h200", "h100", "ascend_a3", "mi355x")
    }
    assert found["default", "h200"] == {
        "recipe": NAME,
        "variant": "default",
        "accelerator": "h200",
        "accelerator_count": 8,
        "stack": "cuda",
        "problem": "",
        "chips": 2,
        "memory_required_gib": 75.7,
        "max_model_len": None,
        "models": [NAME],
    }
    refused = found["default", "ascend_a3"]
    assert (refused["accelerator_count"], refused["chips"], refused["models"]) == (16, 0, [])
    # The name of the instance that is tried means nothing to anybody.
    assert refused["problem"].startswith("'default' of recipe openai/gpt-oss-120b is not for ascend_a3: vLLM Ascend")


def test_a_tokenizer_of_another_repository_is_told_from_weights(tmp_path):
    path = tmp_path / "org" / "a.yaml"
    path.parent.mkdir()
    spec = '\'{"model": "org/draft", "num_speculative_tokens": 3}\''
    words = f"[--tokenizer, org/tokens, --hf-config-path, org/a, --speculative-config, {spec}]"
    path.write_text(f"meta: {{tasks: [text]}}\nmodel: {{model_id: org/a, base_args: {words}}}\n")
    bench = Bench(load_catalogue(), "0.33.0", {"recipe_path": [str(tmp_path)]})
    found = bench.try_recipe("org/a", load_recipe("org/a", [str(tmp_path)]), bench.hosts(["h200"], []))
    assert models_of(found) == ["org/a", "org/draft"] and tokenizers_of(found) == ["org/tokens"]


def test_without_a_request_the_chips_that_the_recipe_lists_are_tried():
    hosts = {host.model: host.count for host in BENCH.hosts([], [RECIPE])}
    assert {"h200": 8, "ascend_a3": 16, "b200": 8}.items() <= hosts.items()
    assert "l4" not in hosts
    assert {host.model for host in BENCH.hosts([], [{"meta": {"hardware": {"h100": "verified"}}}])} == {"h100"}
    assert BENCH.hosts([], [{"meta": {"hardware": {"h100": "unsupported"}}}]) == []


@pytest.mark.parametrize("entry", ["h200:0", "h200:", "h200:x", "h200:8:8", "h200:1000"])
def test_a_host_is_a_model_and_a_number(entry):
    with pytest.raises(TrialError, match="expected MODEL or MODEL:COUNT, such as h200:8"):
        BENCH.hosts([entry], [])


@pytest.mark.parametrize(
    ("entry", "most"), [("gb300:72", "1 to 4"), ("ascend_a3:384", "1 to 16"), ("h200:72", "a whole")]
)
def test_the_chips_of_a_rack_are_not_one_host(entry, most):
    with pytest.raises(TrialError, match=rf"^accelerators: {entry}: found \d+, expected {most}"):
        BENCH.hosts([entry], [])


def test_a_chip_that_nobody_knows_names_the_nearest():
    with pytest.raises(TrialError, match=r"^accelerators: .*nearest: 'h20'"):
        BENCH.hosts(["h20O"], [])


def test_the_table_has_a_row_for_hosts_that_are_alike_and_a_reason_for_the_others():
    found = trials("h100:1", "h200:1", "l4:1")
    text = trial_table(found)
    rows = [line.split("  ") for line in text.splitlines()]
    assert [" ".join(row).split() for row in rows[2:4]] == [
        [NAME, "default", "1", "x", "h100", "1", "69.1", "GiB", "the", "model's", "pinned"],
        [NAME, "default", "1", "x", "h200", "1", "69.6", "GiB", "the", "model's", "pinned"],
    ]
    words = " ".join(text.split())
    assert f"{NAME}, default, not on 1 x l4: does not fit: 65.9 GiB of weights" in words
    assert f"{NAME}, bf16, not on 1 x h100, 1 x h200, 1 x l4: it is for ascend_a2, ascend_a3" in words
    assert max(map(len, text.splitlines())) <= 120


def test_the_models_to_pin_are_those_that_some_plan_serves():
    assert models_of(trials("h200", "l4:1")) == [NAME]
    assert models_of(trials("l4:1")) == []
    assert len(models_of(trials("h200", "ascend_a3"))) == 2


def test_a_recipe_without_variants_has_one():
    plain = {"model": {"model_id": "org/plain"}}
    assert [trial.variant for trial in BENCH.try_recipe("org/plain", plain, BENCH.hosts(["h200"], []))] == ["default"]


def test_what_an_instance_has_to_allow_is_said_and_the_plan_shown_all_the_same(tmp_path):
    (tmp_path / "org").mkdir()
    text = "model: {model_id: org/x, base_env: {LD_PRELOAD: /usr/lib/libjemalloc.so}, base_args: [--middleware, a.B]}\n"
    (tmp_path / "org/x.yaml").write_text(text)
    bench = Bench(CATALOGUE, paths={"recipe_path": [str(tmp_path)]})
    (found,) = bench.try_recipe("org/x", yaml.safe_load(text), bench.hosts(["h200"], []))
    assert found.plan and found.plan["env"]["LD_PRELOAD"] == "/usr/lib/libjemalloc.so"
    assert found.as_dict()["allowed"] == {
        "args": {"middleware": "a.B"},
        "env": {"LD_PRELOAD": "/usr/lib/libjemalloc.so"},
    }
    words = " ".join(trial_table([found]).split())
    assert "org/x, default, only with your permission on 8 x h200: the recipe sets LD_PRELOAD to" in words
