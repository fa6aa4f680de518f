# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan instances: containers of each vendor, images and what they see."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator

from tests.fakes.plans import (
    A3,
    MI300X,
    plan,
    recipe,
    refusal,
    warnings_of,
)


def test_container_of_nvidia():
    found = plan({"replicas": 1})
    weights = "/srv/models/org/model/" + "f" * 40
    assert found.container == {
        "image": "vllm/vllm-openai:v2",
        "command": [],
        "user": "vllm",
        "shm_size": "16g",
        "devices": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"],
        "groups": [],
        "mounts": [
            f"{weights}:{weights}:ro",
            "/etc/vllm/chat.yaml:/etc/vllm/chat.yaml:ro",
            "/var/cache/vllm/chat:/var/cache/vllm/chat",
        ],
        "memlock": True,
    }
    assert found.container["mounts"] == found.mounts
    assert found.libraries == []


VOCABULARY = "TIKTOKEN_ENCODINGS_BASE"


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ({"model_id": "openai/gpt-oss-20b"}, {}),
        ({"model_id": "org/own"}, {"model_id": "acme/GPT-OSS-tuned"}),
        # A model under another name that vLLM reads with the parser of gpt-oss.
        ({"model_id": "org/own", "base_args": ["--tool-call-parser", "openai"]}, {}),
        ({"model_id": "org/own", "base_env": {VOCABULARY: "/srv/encodings"}}, {}),
    ],
)
def test_a_container_of_gpt_oss_sees_the_encodings(model, entry):
    a_recipe = recipe(model=model, variants={"default": {"tp": 2, **entry}})
    found = plan(a_recipe=a_recipe, manifests={})
    assert found.env[VOCABULARY] == "/srv/encodings"
    assert "/srv/encodings:/srv/encodings:ro" in found.mounts
    own = plan({"env": {VOCABULARY: "/srv/own"}}, a_recipe=a_recipe, manifests={})
    assert "/srv/own:/srv/own:ro" in own.mounts
    assert "/srv/encodings:/srv/encodings:ro" not in own.mounts
    none = plan({"env": {VOCABULARY: None}}, a_recipe=a_recipe, manifests={})
    assert VOCABULARY not in none.env


def test_another_model_needs_no_encodings():
    for found in (plan(), plan(a_recipe=recipe(model={"base_env": {VOCABULARY: None}}))):
        assert VOCABULARY not in found.env
        assert not [mount for mount in found.mounts if "encodings" in mount]


def test_container_of_amd():
    found = plan({"chips": [4, 5]}, MI300X)
    assert found.container["devices"] == ["/dev/kfd", "/dev/dri"]
    assert found.container["groups"] == ["render", "video"]
    assert found.container["command"] == found.launch == ["vllm", "serve"]
    assert found.env["HIP_VISIBLE_DEVICES"] == "4,5"


def test_container_of_ascend():
    found = plan({"chips": [2, 3]}, A3)
    assert found.image == "quay.io/ascend/x:v2-a3"
    assert found.container["user"] == "root"
    assert len(found.container["devices"]) == 17
    assert "/usr/local/dcmi:/usr/local/dcmi:ro" in found.mounts
    assert found.env["ASCEND_RT_VISIBLE_DEVICES"] == "2,3"


@pytest.mark.parametrize(
    ("site", "image"),
    [
        ({}, "vllm/vllm-openai:v2"),
        ({"registry": "mirror:5000"}, "mirror:5000/vllm/vllm-openai:v2"),
        ({"image": "site/own@sha256:1", "registry": "mirror:5000"}, "site/own@sha256:1"),
    ],
)
def test_the_site_s_image(site, image):
    found = plan(site=site)
    assert found.image == found.container["image"] == image


RTX = Accelerator("rtx_5090", "cuda", "blackwell", "nvidia", 2, 32 * 1024)
ONE_CARD = {"rtx_5090": {"extra_args": ["--a", "one"]}, "rtx_5090_2x": {"extra_args": ["--kv-cache-dtype", "fp8"]}}


@pytest.mark.parametrize(("size", "there"), [(1, True), (2, False)])
def test_a_block_for_one_card_is_not_for_an_instance_of_two(size, there):
    modes = {"f": {"modes": {"m": {"hardware_overrides": {"rtx_5090": {"args": ["--a", "one"]}}}}}}
    for a_recipe in (
        recipe(hardware_overrides=ONE_CARD),
        recipe(variants={"default": {"hardware_overrides": ONE_CARD}}),
        recipe(features={"f": {"hardware_overrides": {"rtx_5090": {"args": ["--a", "one"]}}}}),
        recipe(features=modes),
        recipe(strategy_overrides={"single_node_tp": {"hardware_overrides": ONE_CARD}}),
    ):
        found = plan({"args": {"tensor-parallel-size": size}}, RTX, a_recipe, manifests={})
        assert ("a" in found.args) is there


@pytest.mark.parametrize(("strategy", "flag"), [("single_node_tep", "tensor"), ("single_node_dep", "data")])
@pytest.mark.parametrize(("size", "chips"), [(4, 4), ({"h200": 2}, 2), (None, 8), (16, 8)])
def test_a_recipe_may_name_the_chips_of_every_strategy(strategy, flag, size, chips):
    override = {strategy: {"tp": size}} if size else {}
    a_recipe = recipe(compatible_strategies=[strategy], strategy_overrides=override)
    found = plan({"replicas": 1}, a_recipe=a_recipe)
    assert (found.args[f"{flag}-parallel-size"], len(found.chips)) == (chips, chips)


def test_a_recipe_s_own_image_serves_unless_the_site_has_one():
    block = {"docker_image": "a/b:c", "docker_serve_command": "vllm serve"}
    a_recipe = recipe(variants={"default": {"tp": 2, "hardware_overrides": {"h200": block}}})
    found = plan(a_recipe=a_recipe, site={"registry": "mirror:5000"})
    assert found.image == found.container["image"] == "mirror:5000/a/b:c"
    assert found.launch == found.container["command"] == ["vllm", "serve"]
    assert "names its own build of vLLM, a/b:c" in found.warnings[0]
    own = plan(a_recipe=a_recipe, site={"image": "site/own:1"})
    assert (own.image, own.launch, warnings_of(own)) == ("site/own:1", [], [])


def test_what_a_recipe_s_own_build_may_have_is_a_warning_that_names_its_image():
    named = {"extra_args": ["--own-flag", "1"], "extra_env": {"VLLM_OF_THE_BUILD": "1"}}
    block = {"docker_image": "a/b:c", **named}
    found = plan(a_recipe=recipe(variants={"default": {"tp": 2, "hardware_overrides": {"h200": block}}}))
    assert (found.args["own-flag"], found.env["VLLM_OF_THE_BUILD"]) == (1, "1")
    # vLLM would stop at such a variable where it checks them.
    assert "fail-on-environ-validation" not in found.args
    texts = [text for text in found.warnings if "the recipe's image a/b:c may have it" in text]
    assert ["--own-flag: vLLM 2.0.0 has no such flag" in texts[0], "VLLM_OF_THE_BUILD" in texts[1]] == [True, True]
    pinned = "mirror:5000/a/b@sha256:" + "0" * 64
    own = plan(a_recipe=recipe(variants={"default": {"docker_image": "a/b:c", **named}}), site={"image": pinned})
    assert [text for text in own.warnings if f"the recipe's image {pinned} may have it" in text]
    other = recipe(variants={"default": {"docker_image": "a/b:c", **named}})
    assert "--own-flag: vLLM 2.0.0 has no such flag" in refusal(a_recipe=other, site={"image": "site/own:1"})
    release = recipe(variants={"default": {"tp": 2, "hardware_overrides": {"h200": named}}})
    assert "--own-flag: vLLM 2.0.0 has no such flag" in refusal(a_recipe=release)
    wrong = recipe(variants={"default": {"tp": 2, "docker_image": "a/b:c", "extra_args": ["--max-num-seqs", "many"]}})
    assert "--max-num-seqs: expected" in refusal(a_recipe=wrong)
