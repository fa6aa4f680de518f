# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan instances: what a recipe, a release or a host does not have."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import Library
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.plan import plan_instances

from tests.fakes.plans import (
    A3,
    CPU,
    H200,
    MANIFESTS,
    MI300X,
    RELEASE,
    SITE,
    library,
    plan,
    recipe,
    refusal,
)

OFFERED = {
    "variants": {"default": {"tp": 2}, "mx": {"precision": "mxfp4"}},
    "presets": {"latency": {"extra_args": ["--a", "x"]}, "measured": {"points": [1]}},
    "features": {"tools": {"args": ["--b", "x"]}, "spec": {"modes": {"eagle": {}}}},
    "opt_in_features": ["tools", "spec"],
}


@pytest.mark.parametrize(
    ("requested", "accelerator", "message"),
    [
        ({"variant": "defaul"}, H200, ".variant: recipe org/model has no variant 'defaul'; nearest: 'default'"),
        ({"preset": "latence"}, H200, ".preset: recipe org/model has no preset 'latence'; nearest: 'latency'"),
        (
            {"preset": "measured"},
            H200,
            ".preset: 'measured' of recipe org/model holds measured points for one system, so it is not a "
            "preset of this "
            "collection; copy the settings that you want to args and env",
        ),
        ({"features": ["tool"]}, H200, ".features: recipe org/model has no feature 'tool'; nearest: 'tools'"),
        (
            {"features": ["spec"], "feature_modes": {"spec": "eagel"}},
            H200,
            ".feature_modes.spec: recipe org/model has no mode 'eagel'; nearest: 'eagle'",
        ),
        (
            {"strategy": "single_node_dep"},
            H200,
            ".strategy: recipe org/model does not list 'single_node_dep' for h200; nearest: 'single_node_tp'",
        ),
        (
            {"variant": "mx"},
            A3,
            ".variant: 'mx' of recipe org/model is not for ascend_a3: vLLM Ascend has no MXFP4 kernels for this "
            "chip, it "
            "serves the weights in bfloat16; the variants that run on it: default",
        ),
        (
            {"runtime": "venv"},
            H200,
            ".runtime: release '2.0' has no lock of wheels for this stack, so the host cannot have a virtual "
            "environment; "
            "use the "
            "runtime 'container', or name a lock (requirements) in a release of your own",
        ),
    ],
)
def test_what_the_recipe_or_the_release_does_not_have(requested, accelerator, message):
    assert refusal(requested, accelerator, recipe(**OFFERED)) == f"vllm_instances.chat{message}"


def test_weights_in_a_format_that_the_chip_lacks_whatever_the_recipe_says():
    manifests = {"org/model": {**MANIFESTS["org/model"], "precision": "mxfp4"}}
    assert plan({}, manifests=manifests).model == "org/model"
    assert refusal({}, A3, manifests=manifests) == (
        "vllm_instances.chat: the weights of org/model are mxfp4, which ascend_a3 does not support: vLLM Ascend has no "
        "MXFP4 kernels for this chip, it serves the weights in bfloat16; no variant of this recipe runs on it"
    )


def test_a_rocm_lock_for_another_python():
    assert refusal({"runtime": "venv"}, MI300X) == (
        "rocm.txt: the lock is for Python 3.11, the wheels of release '2.0' for this stack are for Python 3.12 "
        "only; another Python would silently get another vendor's wheel"
    )


def test_a_driver_that_is_too_old():
    old = Accelerator(**{**H200.__dict__, "driver_version": "575.57.08"})
    assert refusal(accelerator=old) == (
        "vllm_release '2.0' needs driver 580 or newer for cuda, the host has 575.57.08; upgrade the driver, or "
        "choose an "
        "older release"
    )


@pytest.mark.parametrize(("accelerator", "release"), [(H200, "0.33.0"), (A3, "0.30.0"), (CPU, "0.32.0")])
def test_without_a_release_the_stack_decides(accelerator, release):
    # Only a recipe for all hardware is planned here; the releases are those of this file.
    found = plan(accelerator=accelerator, site={"release": ""}, manifests={})
    assert found.release == release


def test_a_stack_that_the_collection_has_no_release_for():
    other = Accelerator("rocket", "acme", "r1", "acme", 1, 8 * 1024)
    assert refusal(accelerator=other, site={"release": ""}) == (
        "vllm_release is empty, and the collection has no release for stack 'acme' (accelerator 'rocket'); name one in "
        "vllm_release, and put its file into vllm_release_path"
    )


def test_an_instance_may_have_a_release_of_its_own():
    asked = []
    theirs = library(recipe())
    requested = {"chat": {"recipe": "org/model", "release": "1.9"}}
    spy = Library(**{**theirs.__dict__, "release": lambda name: asked.append(name) or RELEASE})
    (found, *_rest) = plan_instances("h1", H200, requested, SITE, spy)
    assert (asked, found["release"]) == (["1.9"], "1.9")


@pytest.mark.parametrize("value", ['{"text_config":' * 900 + "1" + "}" * 900, "[" * 400 + "]" * 400])
def test_a_nested_value_of_a_recipe_or_an_instance_is_one_sentence(value):
    words = (
        "vllm_instances.chat.args.hf-overrides: found more than 20 levels of lists and mappings, expected fewer; "
        "shorten it, or remove a recipe's with the value null"
    )
    assert refusal({}, a_recipe=recipe(model={"base_args": ["--hf-overrides", value]})) == words
    assert refusal({"args": {"hf-overrides": value}}) == words
    dotted = "compilation-config." + ".".join(["a"] * 1500)
    for found in (
        refusal({}, a_recipe=recipe(model={"base_args": [f"--{dotted}", "1"]})),
        refusal({"args": {dotted: 1}}),
    ):
        assert found == words.replace("hf-overrides", "compilation-config")


def test_the_frontend_that_loads_no_middleware_is_refused():
    words = (
        "vllm_instances.chat.env.VLLM_USE_RUST_FRONTEND: found '1', expected '0': vLLM's frontend in Rust refuses "
        "--middleware, by which this collection steers requests and counts their tokens; leave it out, or remove a "
        "recipe's with the value null"
    )
    setting = recipe(model={"base_env": {"VLLM_USE_RUST_FRONTEND": "1"}})
    found = plan({}, a_recipe=setting, site={"strict": False})
    assert "VLLM_USE_RUST_FRONTEND" not in found.env
    assert [warning for warning in found.warnings if "RUST" in warning] == [
        "vllm_instances.chat: the recipe's VLLM_USE_RUST_FRONTEND has no effect: vLLM's frontend in Rust refuses "
        "--middleware, by which this collection counts tokens"
    ]
    assert refusal({"env": {"VLLM_USE_RUST_FRONTEND": "1"}}, site={"strict": False}) == words
    kept = {"env": {"VLLM_USE_RUST_FRONTEND": "0"}}
    assert plan(kept, site={"strict": False}).env["VLLM_USE_RUST_FRONTEND"] == "0"
    removed = plan({"env": {"VLLM_USE_RUST_FRONTEND": None}}, a_recipe=setting, site={"strict": False})
    assert "VLLM_USE_RUST_FRONTEND" not in removed.env


def test_a_library_that_the_image_loads_itself_is_not_a_recipe_s():
    # Of vllm-ascend's images .bashrc sets LD_PRELOAD, and the release's start reads it.
    setting = recipe(model={"base_env": {"LD_PRELOAD": "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2:$LD_PRELOAD"}})
    cann = {**RELEASE["stacks"]["cann"], "entrypoint": ["/bin/bash", "-lc", '. /root/.bashrc; exec vllm serve "$@"']}
    release = {**RELEASE, "stacks": {**RELEASE["stacks"], "cann": cann}}
    found = plan({}, A3, setting, release=release)
    assert "LD_PRELOAD" not in found.env
    assert any("the recipe's LD_PRELOAD has no effect: the .bashrc of the image" in text for text in found.warnings)
    assert "found the placeholder $LD_PRELOAD" in refusal({}, A3, setting)


@pytest.mark.parametrize("number", ["9" * 5000, "1" + "0" * 400, "9" * 5000 + "k", "1e400"], ids=len)
@pytest.mark.parametrize("flag", ["max-model-len", "data-parallel-size", "pipeline-parallel-size", "max-num-seqs"])
def test_a_number_that_nothing_can_hold_names_its_flag(flag, number):
    assert f"--{flag}: expected an integer" in refusal(a_recipe=recipe(model={"base_args": [f"--{flag}", number]}))
    assert flag in refusal({"args": {flag: number}})


def test_an_amount_of_memory_that_nothing_has_is_refused():
    assert "kv_cache.host_gib: found 1000" in refusal({"kv_cache": {"host_gib": 10**400}})
