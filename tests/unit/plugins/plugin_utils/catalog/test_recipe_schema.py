# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.recipe_schema import (
    check_families,
    check_recipe,
    unread_keys,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError

MODEL = {"model": {"model_id": "org/model"}}

GOOD = {
    "meta": {
        "title": "x",
        "difficulty": "advanced",
        "hardware": {"h200": "verified"},
        "default_variant": {"ascend": "bf16", "default": "default"},
    },
    "model": {
        "model_id": "org/model",
        "min_vllm_version": "0.11.0",
        "docker_image": {"nvidia": {"cu129": "x"}, "amd": "y"},
        "base_args": ["--max-model-len", 4096, "--eager"],
        "base_env": {"A": 1, "B": None},
        "kv_cache_bytes_per_token": 36864,
        "rules": [{"when": {"vllm": "<0.13"}, "unless": {"features": ["x"]}, "because": "Why", "extra_args": ["--x"]}],
    },
    "features": {
        "tools": {"args": ["--tools"], "hardware": {"ampere": "unsupported"}},
        "spec": {"default_mode": "a", "modes": {"a": {"args": ["--a"], "variants": ["default"]}, "b": None}},
        "empty": None,
    },
    "opt_in_features": ["spec"],
    "variants": {"default": {"tp": {"h200": 1, "default": 2}, "vram_minimum_gb": 72.5}, "other": None},
    "presets": {
        "latency": {
            "tp": 4,
            "extra_args": ["--x"],
            "rules": [{"when": {"generation": ["hopper"]}, "extra_env": {"A": "1"}}],
        },
        "upstream": {"points": [{"any": "thing"}]},
    },
    "compatible_strategies": ["single_node_tp"],
    "strategy_min_gpus": {"multi_node_tp": 16, "a": {"h100": 8}, "h200": {"multi_node_tp": 8}, "b": None, "c": {}},
    "strategy_overrides": {"single_node_tp": {"tp": 2, "vllm_args": ["--x"], "hardware_overrides": {"amd": None}}},
    "hardware_overrides": {"hopper": {"extra_args": ["--x"], "install_note": "x"}},
    "release_fixes": [{"when": {"vllm": ">=0.12,<0.13"}, "extra_env": {"A": "1"}}],
    "guards": [
        {"when": {"args": {"x": "present"}, "env": {"A": "absent"}, "secrets": {"B": "absent"}}, "refuse": "No."}
    ],
    "known_issues": [{"symptom": "x", "advice": "y", "when": {"count": ">=2"}}],
    "guide": "Text",
}


def refusal(recipe):
    with pytest.raises(PlanError) as caught:
        check_recipe(recipe, "model.yml")
    return str(caught.value)


def test_a_recipe_with_everything_that_there_is():
    check_recipe(GOOD, "model.yml")


@pytest.mark.parametrize("section", sorted(set(GOOD) - {"model"}))
def test_a_section_may_be_empty(section):
    if section in ("compatible_strategies", "guide"):
        check_recipe({key: value for key, value in GOOD.items() if key != section}, "model.yml")
    else:
        check_recipe({**GOOD, section: None}, "model.yml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": {}}, "unknown key 'variant'; nearest: 'variants'"),
        ({"model": {"model_id": "a", "base_arg": []}}, "unknown key 'model.base_arg'; nearest: 'base_args'"),
        ({"features": {"x": {"arg": []}}}, "unknown key 'features.x.arg'; nearest: 'args'"),
        (
            {"features": {"x": {"modes": {"m": {"extra_args": []}}}}},
            "unknown key 'features.x.modes.m.extra_args'; "
            "known: args, description, env, hardware, hardware_overrides, label, rules, variants",
        ),
        (
            {"hardware_overrides": {"hopper": {"args": []}}},
            "unknown key 'hardware_overrides.hopper.args'; known: extra_args, extra_env, install_note, rules",
        ),
        ({"presets": {"x": {"tpp": 1}}}, "unknown key 'presets.x.tpp'; nearest: 'tp'"),
        # These two keys below meta decide on the plan.
        ({"meta": {"hardwares": {}}}, "unknown key 'meta.hardwares'; nearest: 'hardware'"),
        ({"meta": {"default_variants": {}}}, "unknown key 'meta.default_variants'; nearest: 'default_variant'"),
        ({"meta": ["title"]}, "meta: found a list, expected a mapping"),
        ({"meta": {"tasks": "text"}}, "meta.tasks: found the text 'text', expected a list of names"),
        ({"model": {}}, "model.model_id is missing"),
        ({"model": {"model_id": ""}}, "model.model_id is missing"),
        ({"model": None}, "model: found nothing, expected a mapping"),
        ({"model": []}, "model: found a list, expected a mapping"),
        ({"variants": ["default"]}, "variants: found a list, expected a mapping"),
        ({"variants": {"default": "mxfp4"}}, "variants.default: found the text 'mxfp4', expected a mapping"),
        ({"features": {"x": ["--y"]}}, "features.x: found a list, expected a mapping"),
        (
            {"hardware_overrides": {"amd": {"extra_args": "--x 1"}}},
            "hardware_overrides.amd.extra_args: found the text '--x 1', "
            "expected a list of words, each flag and each value one of them",
        ),
        (
            {"model": {"model_id": "a", "base_args": {"x": 1}}},
            "model.base_args: found a mapping, expected a list of words, each flag and each value one of them",
        ),
        (
            {"model": {"model_id": "a", "base_args": ["--x", {"a": 1}]}},
            "model.base_args[1]: found a mapping, expected one value",
        ),
        (
            {"model": {"model_id": "a", "base_args": ["--x", None]}},
            "model.base_args[1]: found nothing, expected something after the dash",
        ),
        ({"model": {"model_id": "a", "base_env": ["A=1"]}}, "model.base_env: found a list, expected a mapping"),
        ({"model": {"model_id": "a", "base_env": {"A": [1]}}}, "model.base_env.A: found a list, expected one value"),
        (
            {"model": {"model_id": "a", "context_length": "128k"}},
            "model.context_length: found the text '128k', expected a whole number",
        ),
        (
            {"model": {"model_id": "a", "context_length": True}},
            "model.context_length: found true, expected a whole number",
        ),
        (
            {"model": {"model_id": "a", "context_length": -1}},
            "model.context_length: found -1, expected a whole number above 0, at most 10^15",
        ),
        (
            {"model": {"model_id": "a", "kv_cache_bytes_per_token": 0}},
            "model.kv_cache_bytes_per_token: found 0, expected a whole number above 0, at most 10^15",
        ),
        (
            {"variants": {"a": {"vram_minimum_gb": float("nan")}}},
            "variants.a.vram_minimum_gb: found nan, expected a number above 0, at most 10^15",
        ),
        (
            {"variants": {"a": {"vram_minimum_gb": float("inf")}}},
            "variants.a.vram_minimum_gb: found inf, expected a number above 0, at most 10^15",
        ),
        (
            {"variants": {"a": {"tp": {"h200": -2}}}},
            "variants.a.tp.h200: found -2, expected a whole number above 0, at most 10^15",
        ),
        (
            {"presets": {"a": {"tp": 10**400}}},
            f"presets.a.tp: found 1{'0' * 199}..., expected a whole number above 0, at most 10^15",
        ),
        (
            {"model": {"model_id": "a", "min_vllm_version": "0.11\t.0"}},
            "model.min_vllm_version: found the text '0.11\\t.0', expected a version such as 0.33.0",
        ),
        (
            {"variants": {"a": {"min_vllm_version": "h200"}}},
            "variants.a.min_vllm_version: found the text 'h200', expected a version such as 0.33.0",
        ),
        ({"variants": {"a": {"tp": "2"}}}, "variants.a.tp: found the text '2', expected a whole number"),
        ({"variants": {"a": {"tp": {"h200": "2"}}}}, "variants.a.tp.h200: found the text '2', expected a whole number"),
        (
            {"strategy_min_gpus": {"multi_node_tp": "16"}},
            "strategy_min_gpus.multi_node_tp: found the text '16', expected a whole number",
        ),
        (
            {"strategy_min_gpus": {"h100": {"multi_node_tp": True}}},
            "strategy_min_gpus.h100.multi_node_tp: found true, expected a whole number",
        ),
        (
            {"strategy_min_gpus": {"multi_node_tp": 0}},
            "strategy_min_gpus.multi_node_tp: found 0, expected a whole number above 0, at most 10^15",
        ),
        ({"strategy_min_gpus": "many"}, "strategy_min_gpus: found the text 'many', expected a whole number"),
        ({"opt_in_features": "spec"}, "opt_in_features: found the text 'spec', expected a list of names"),
        ({"release_fixes": {"when": {}}}, "release_fixes: found a mapping, expected a list of rules"),
        ({"release_fixes": [None]}, "release_fixes[0]: found nothing, expected something after the dash"),
        ({"release_fixes": [{"whenn": {}}]}, "unknown key 'release_fixes[0].whenn'; nearest: 'when'"),
        (
            {"release_fixes": [{"args": []}]},
            "unknown key 'release_fixes[0].args'; known: because, extra_args, extra_env, unless, when",
        ),
        ({"release_fixes": [{"when": []}]}, "release_fixes[0].when: found a list, expected a mapping of conditions"),
        (
            {"release_fixes": [{"when": {"vlm": "1"}}]},
            "unknown condition 'release_fixes[0].when.vlm'; nearest: 'vllm'",
        ),
        (
            {"release_fixes": [{"unless": {"vllm": "~0.33"}}]},
            "release_fixes[0].unless.vllm: found '~0.33', expected a form like '>=0.24,<0.33'",
        ),
        (
            {"release_fixes": [{"when": {"count": "many"}}]},
            "release_fixes[0].when.count: found 'many', expected a form like '>=0.24,<0.33'",
        ),
        # Only what is looked at after all layers can ask for what came out of them.
        (
            {"release_fixes": [{"when": {"args": {"x": 1}}}]},
            "unknown condition 'release_fixes[0].when.args'; known: ",
        ),
        (
            {"guards": [{"when": {"args": ["x"]}, "refuse": "No."}]},
            "guards[0].when.args: found ['x'], expected a mapping of names to requirements",
        ),
        ({"guards": [{"refused": "No."}]}, "unknown key 'guards[0].refused'; nearest: 'refuse'"),
        ({"known_issues": [{"symptom": "x"}]}, "known_issues[0].advice is missing"),
    ],
)
def test_what_the_schema_does_not_know_is_one_sentence_with_file_and_key(changes, message):
    found = refusal({**MODEL, **changes})
    if message.endswith("known: "):
        assert found.startswith(f"model.yml: {message}")
    else:
        assert found == f"model.yml: {message}"


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (None, "model.yml: the file: found nothing, expected a mapping"),
        ([], "model.yml: the file: found a list, expected a mapping"),
        ({}, "model.yml: model is missing"),
    ],
)
def test_a_file_that_is_no_recipe(recipe, message):
    assert refusal(recipe) == message


def test_a_key_below_meta_that_describes_the_model_is_a_note_and_no_error():
    described = {**MODEL, "meta": {"title": "x", "difficult": "hard", "popularity": {"stars": [1]}, 7: None}}
    check_recipe(described, "model.yml")
    assert unread_keys(GOOD, "model.yml") == unread_keys(MODEL, "model.yml") == []
    notes = unread_keys(described, "model.yml")
    assert notes[0] == "model.yml: meta.difficult: unknown key, which has no effect; nearest: 'difficulty'"
    assert [note.split(": ")[1] for note in notes] == ["meta.difficult", "meta.popularity", "meta.7"]


FAMILY = {"models": ["a-.*"], "source": "vllm/x.py"}


@pytest.mark.parametrize(
    ("families", "message"),
    [
        ({"guard": []}, "f: unknown key 'guard'; nearest: 'guards'"),
        ({"guards": [{"warn": "w", "source": "s"}]}, "f: guards[0].models is missing"),
        ({"guards": [{**FAMILY, "refused": "r"}]}, "f: unknown key 'guards[0].refused'; nearest: 'refuse'"),
        (
            {"guards": [{**FAMILY, "models": ["(a"]}]},
            "f: guards[0].models[0]: found the text '(a', expected a regular expression of Python: missing ), "
            "unterminated subpattern at position 0",
        ),
        (
            {"guards": [{**FAMILY, "models": [["a"]]}]},
            "f: guards[0].models[0]: found a list, expected a text",
        ),
        ({"known_issues": [{**FAMILY, "symptom": "s"}]}, "f: known_issues[0].advice is missing"),
    ],
)
def test_a_wrong_entry_of_the_families_is_named(families, message):
    with pytest.raises(PlanError) as caught:
        check_families(families, "f")
    assert str(caught.value) == message


def test_right_entries_of_the_families_pass():
    check_families({"guards": [{**FAMILY, "when": {"args": {"a.b": ["absent", ">4"]}}, "warn": "w"}]}, "f")


@pytest.mark.parametrize(
    "name", ["--middleware=evil.Code", "-h", "../../etc", "/etc/x", "https://a/b", "a/../b", "a/b/c", "a/b\nc"]
)
@pytest.mark.parametrize("place", ["model", "variant"])
def test_a_model_is_a_repository_and_no_path_address_or_flag(name, place):
    recipe = {"model": {"model_id": "org/model"}, "variants": {"default": {"model_id": "org/model-fp8"}}}
    check_recipe(recipe, "r.yaml")
    (recipe["model"] if place == "model" else recipe["variants"]["default"])["model_id"] = name
    with pytest.raises(PlanError, match=r"model_id: found .*, expected <organisation>/<name>"):
        check_recipe(recipe, "r.yaml")
