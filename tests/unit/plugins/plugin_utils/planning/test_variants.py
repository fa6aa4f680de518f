# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.inputs import PlanError
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.variants import (
    TRY_IT,
    check_driver,
    check_format,
    check_release,
    choose_variant,
    other_variants,
    untried_hardware,
    variant_doubts,
)

H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, driver_version="580.65.06")
B200 = Accelerator("b200", "cuda", "blackwell", "nvidia", 8)
A100 = Accelerator("a100", "cuda", "ampere", "nvidia", 8)
MI300X = Accelerator("mi300x", "rocm", "gfx942", "amd", 8)
NO_MXFP4 = (("mxfp4", "vLLM Ascend has no MXFP4 kernels for this chip, it serves the weights in bfloat16"),)
A2 = Accelerator("ascend_a2", "cann", "ascend_a2", "ascend", 8, lacks=NO_MXFP4)
A3 = Accelerator("ascend_a3", "cann", "ascend_a3", "ascend", 16, lacks=NO_MXFP4)
A310P = Accelerator("ascend_310p", "cann", "ascend_310p", "ascend", 2, lacks=NO_MXFP4)


def recipe(variants=None, **meta):
    return {"model": {"model_id": "org/model"}, "meta": meta, "variants": variants}


def variant(a_recipe, accelerator=H200, requested=None):
    return choose_variant(a_recipe, accelerator, requested, "vllm_instances.chat")


BOTH = {"default": {"precision": "mxfp4"}, "bf16": None}


@pytest.mark.parametrize(
    ("a_recipe", "accelerator", "requested", "name"),
    [
        (recipe(), H200, None, "default"),
        (recipe(BOTH), H200, None, "default"),
        (recipe(BOTH), H200, "bf16", "bf16"),
        (recipe(BOTH, default_variant={"ascend": "bf16", "default": "default"}), A2, None, "bf16"),
        (recipe(BOTH, default_variant={"ascend": "bf16", "default": "default"}), H200, None, "default"),
        (recipe({"default": {"precision": "nvfp4"}}), B200, None, "default"),
        (recipe({"default": {"precision_hardware": {"brand": "NVIDIA"}}}), H200, None, "default"),
        # What the recipe says goes before what is known of the format.
        (
            recipe({"default": {"precision": "nvfp4", "precision_hardware": {"generation": "hopper"}}}),
            H200,
            None,
            "default",
        ),
        # A key without a value is as good as none.
        ({**recipe(), "meta": None}, H200, None, "default"),
        (recipe({"default": None}, default_variant=None, hardware=None), A2, None, "default"),
        (recipe({"default": {"precision": None, "supported_hardware": None}}), A2, None, "default"),
        (recipe({"default": {"supported_hardware": ["hopper"]}}), H200, None, "default"),
        # Upstream's lists name what somebody tried, of its own systems: a chip outside of them counts with its kind.
        (recipe({"default": {"supported_hardware": ["h100", "b200"]}}), A100, None, "default"),
        (recipe(hardware={"h200": "verified", "b200": "unsupported"}), H200, None, "default"),
        # Plain weights that somebody tried on a processor only.
        (recipe({"default": {"precision": "bf16", "supported_hardware": ["xeon6"]}}), MI300X, None, "default"),
    ],
)
def test_which_variant_is_served(a_recipe, accelerator, requested, name):
    assert variant(a_recipe, accelerator, requested) == name


@pytest.mark.parametrize(
    ("a_recipe", "accelerator", "requested", "message"),
    [
        (recipe(BOTH), H200, "bf61", "recipe org/model has no variant 'bf61'; nearest: 'bf16'"),
        (recipe({"fp8": {}}), H200, None, "recipe org/model has no variant 'default'; known: fp8"),
        (
            recipe(BOTH),
            A2,
            None,
            "'default' of recipe org/model is not for ascend_a2: vLLM Ascend has no MXFP4 kernels for this chip, it "
            "serves "
            "the weights in bfloat16; the variants that run on it: bf16",
        ),
        (
            recipe({"default": {"precision": "mxfp4"}}),
            A3,
            "default",
            "'default' of recipe org/model is not for ascend_a3: vLLM Ascend has no MXFP4 kernels for this chip, it "
            "serves "
            "the weights in bfloat16; no variant of this recipe runs on it",
        ),
        (
            recipe({"default": {}, "fast": {"precision": "nvfp4"}}),
            A2,
            "fast",
            "'fast' of recipe org/model is not for ascend_a2: nvfp4 needs blackwell; the variants that run on it: "
            "default",
        ),
        # Brand and generation, not one of them.
        (
            recipe(
                {"default": {"precision": "fp8", "precision_hardware": {"brand": "NVIDIA", "generation": "blackwell"}}}
            ),
            H200,
            None,
            "'default' of recipe org/model is not for h200: fp8 needs NVIDIA blackwell; no variant of this "
            "recipe runs on it",
        ),
        (
            recipe({"default": {"supported_hardware": ["xeon6", "mi355x"]}}),
            H200,
            None,
            "'default' of recipe org/model is not for h200: it is for xeon6, mi355x; no variant of this "
            "recipe runs on it",
        ),
        # Kernels that the recipe names, and architectures that its author means.
        *(
            (
                recipe({"default": {"precision": "fp8", "supported_hardware": [name], **more}}),
                H200,
                None,
                f"'default' of recipe org/model is not for h200: it is for {name}; no variant of this recipe runs on "
                "it",
            )
            for name, more in (
                ("b200", {"extra_args": ["--linear-backend", "flashinfer_cutedsl"]}),
                ("b200", {"extra_env": {"VLLM_X": "1"}}),
                ("arch:sm100", {}),
            )
        ),
        (
            recipe({"default": {"supported_hardware": ["h100"]}}),
            MI300X,
            None,
            "'default' of recipe org/model is not for mi300x: it is for h100; no variant of this recipe runs on it",
        ),
        (
            recipe({"default": {"precision": "bf16", "supported_hardware": ["xeon6"]}}),
            A310P,
            None,
            "'default' of recipe org/model is not for ascend_310p: it is for xeon6; no variant of this recipe runs on "
            "it",
        ),
        (
            recipe({"default": {"precision": "int8", "supported_hardware": ["ascend_910c"]}}),
            A310P,
            None,
            "'default' of recipe org/model is not for ascend_310p: it is for ascend_910c; no variant of this recipe "
            "runs on it",
        ),
        (
            recipe({"default": {"precision": "int8", "supported_hardware": ["ascend_910c", "h100"]}}),
            A2,
            None,
            "'default' of recipe org/model is not for ascend_a2: it is for ascend_910c, h100; no variant of this "
            "recipe runs on it",
        ),
        (
            recipe({"default": {"precision": "bf16", "supported_hardware": ["xeon6"], "extra_args": ["--x"]}}),
            H200,
            None,
            "'default' of recipe org/model is not for h200: it is for xeon6; no variant of this recipe runs on it",
        ),
        (
            recipe(hardware={"h200": "unsupported"}),
            H200,
            None,
            "'default' of recipe org/model is not for h200: the recipe says that the model does not run "
            "there; no variant of this recipe runs on it",
        ),
    ],
)
def test_a_variant_that_cannot_run_here(a_recipe, accelerator, requested, message):
    with pytest.raises(PlanError) as caught:
        variant(a_recipe, accelerator, requested)
    # No setting gives a chip a number format that it lacks.
    way_out = TRY_IT if "is not for" in message and "MXFP4" not in message else ""
    assert str(caught.value) == f"vllm_instances.chat.variant: {message}{way_out}"


LENIENT = [
    ({"precision_hardware": {"generation": "blackwell"}}, {}, "None needs blackwell"),
    ({"supported_hardware": ["mi355x"]}, {}, "it is for mi355x"),
    ({}, {"hardware": {"h200": "unsupported"}}, "the recipe says that the model does not run there"),
]


@pytest.mark.parametrize(("entry", "meta", "reason"), LENIENT)
def test_a_lenient_site_may_try_what_the_recipe_does_not_list(entry, meta, reason):
    a_recipe = recipe({"default": entry}, **meta)
    assert choose_variant(a_recipe, H200, None, "vllm_instances.chat", strict=False) == "default"
    assert variant_doubts(a_recipe, "default", H200, "vllm_instances.chat") == [
        f"vllm_instances.chat.variant: 'default' of recipe org/model is not for h200: {reason}"
    ]


def test_plain_weights_that_were_tried_elsewhere_come_with_a_warning():
    a_recipe = recipe({"default": {"precision": "fp16", "supported_hardware": ["xeon6"]}})
    assert variant_doubts(a_recipe, "default", H200, "vllm_instances.chat") == [
        "vllm_instances.chat.variant: recipe org/model lists 'default' for xeon6, not for h200; its weights are plain, "
        "so it is served all the same"
    ]
    for chip in (A2, A3):
        assert variant_doubts(a_recipe, "default", chip, "chat")[0].endswith("are plain, so it is served all the same")
    listed = recipe({"default": {"precision": "fp16", "supported_hardware": ["hopper"]}})
    assert variant_doubts(listed, "default", H200, "vllm_instances.chat") == []


def test_formats_that_were_tried_on_other_chips_of_nvidia_come_with_a_warning():
    fp8 = {"precision": "fp8", "model_id": "else/fp8", "extra_args": ["--kv-cache-dtype", "fp8"]}
    a_recipe = recipe({"default": {}, "fp8": {**fp8, "supported_hardware": ["h100"]}, "fp4": {"precision": "nvfp4"}})
    assert variant(a_recipe, H200, "fp8") == variant(a_recipe, A100, "fp8") == "fp8"
    assert variant_doubts(a_recipe, "fp8", H200, "chat") == [
        "chat.variant: recipe org/model lists 'fp8' for h100, not for h200; vLLM has kernels for its weights there, so "
        "it is served all the same"
    ]
    # catalog/families.yml warns of it.
    assert variant(a_recipe, H200, "fp4") == variant(a_recipe, MI300X, "fp4") == "fp4"


def test_w8a8_weights_that_were_tried_on_another_chip_of_ascend_come_with_a_warning():
    w8a8 = {"precision": "int8", "model_id": "else/w8a8", "extra_args": ["--x"], "supported_hardware": ["ascend_950dt"]}
    a_recipe = recipe({"default": {}, "ascend_w8a8": w8a8})
    assert variant(a_recipe, A3, "ascend_w8a8") == "ascend_w8a8"
    assert variant_doubts(a_recipe, "ascend_w8a8", A3, "chat") == [
        "chat.variant: recipe org/model lists 'ascend_w8a8' for ascend_950dt, not for ascend_a3; its weights are in "
        "W8A8, so it is served all the same"
    ]


def test_a_lenient_site_cannot_try_a_format_that_the_chip_lacks():
    with pytest.raises(PlanError, match="no MXFP4 kernels"):
        choose_variant(recipe(BOTH), A2, None, "vllm_instances.chat", strict=False)
    assert variant_doubts(recipe(BOTH), "default", H200, "vllm_instances.chat") == []


OWN = {"bf16": {"model_id": "else/model-BF16", "precision": "bf16"}}


def test_the_way_out_names_the_weights_of_a_variant():
    with pytest.raises(PlanError, match=r"; the variants that run on it: bf16 \(weights else/model-BF16\)$"):
        variant(recipe({"default": {"precision": "mxfp4"}, **OWN}), A2)


@pytest.mark.parametrize(
    ("variants", "way_out"),
    [
        # Neither says what format it is: both have the recipe's own weights.
        ({"default": {}, "fast": None}, "no variant of this recipe runs on it"),
        ({"default": {}, **OWN}, "the variants that run on it: bf16 (weights else/model-BF16)"),
    ],
)
def test_the_format_that_the_manifest_says_is_refused_where_the_chip_lacks_it(variants, way_out):
    with pytest.raises(PlanError) as caught:
        check_format(recipe(variants), "org/model", {"precision": "mxfp4"}, A2, "vllm_instances.chat")
    assert str(caught.value) == (
        "vllm_instances.chat: the weights of org/model are mxfp4, which ascend_a2 does not support: vLLM Ascend has no "
        f"MXFP4 kernels for this chip, it serves the weights in bfloat16; {way_out}"
    )


@pytest.mark.parametrize(
    ("manifest", "accelerator"),
    [(None, A2), ({}, A2), ({"precision": "bf16"}, A2), ({"precision": "mxfp4"}, H200)],
)
def test_other_formats_and_other_chips_are_served(manifest, accelerator):
    check_format(recipe({"default": {}}), "org/model", manifest, accelerator, "vllm_instances.chat")


@pytest.mark.parametrize(
    ("of_model", "of_variant", "good"),
    [
        ("0.33.0", None, True),
        ("0.33", None, True),
        ("0.33.1", None, False),
        ("0.9", None, True),
        (None, "0.34", False),
        ("0.34", "0.20", True),
        # Words of upstream that no number can be compared with.
        ("nightly", None, True),
        (">=0.34", None, False),
        (None, None, True),
    ],
)
def test_the_oldest_vllm_that_a_recipe_runs_on(of_model, of_variant, good):
    a_recipe = {"model": {"model_id": "org/model", "min_vllm_version": of_model}}
    arguments = (a_recipe, {"min_vllm_version": of_variant}, "0.33.0", "stable", "vllm_instances.chat")
    if good:
        check_release(*arguments)
    else:
        with pytest.raises(PlanError) as caught:
            check_release(*arguments)
        assert str(caught.value) == (
            f"vllm_instances.chat.recipe: org/model needs vLLM {of_variant or of_model} or newer, release 'stable' has "
            "0.33.0; choose a newer vllm_release"
        )


def test_a_driver_older_than_the_release_needs():
    check_driver({"minimum_driver": "580.65.06"}, H200, "0.33.0")
    check_driver({"minimum_driver": "999"}, B200, "0.33.0")
    check_driver({}, H200, "0.33.0")
    with pytest.raises(PlanError) as caught:
        check_driver({"minimum_driver": "580.65.07"}, H200, "0.33.0")
    assert str(caught.value) == (
        "vllm_release '0.33.0' needs driver 580.65.07 or newer for cuda, the host has 580.65.06; upgrade the "
        "driver, or "
        "choose an older release"
    )


@pytest.mark.parametrize(
    ("hardware", "words"),
    [
        ({"h200": "verified", "mi300x": "verified"}, "org/model was tried on h200, mi300x, and not on l40s"),
        ({"l40s": "verified"}, None),
        # Any of its generation, and two of its stack's, as for lists of a variant.
        ({"ada": "verified"}, None),
        ({"h200": "verified", "b200": "verified"}, None),
        ({}, None),
    ],
)
def test_hardware_that_nobody_tried_is_a_warning(hardware, words):
    l40s = Accelerator("l40s", "cuda", "ada", "nvidia", 8, 48 * 1024)
    found = untried_hardware({"model": {"model_id": "org/model"}, "meta": {"hardware": hardware}}, l40s, "chat")
    assert found == ([f"chat.recipe: {words}"] if words else [])


def test_a_recipe_that_names_no_hardware_or_a_default_is_tried_everywhere():
    for meta in ({}, {"hardware": None}, {"hardware": {"default": "verified"}}, {"hardware": {"nvidia": "verified"}}):
        assert untried_hardware(recipe(**meta), H200, "here") == []
    assert untried_hardware({**recipe(), "meta": None}, H200, "here") == []


@pytest.mark.parametrize(
    ("chips", "memory_mib", "names"),
    [
        (1, 141 * 1024, ["half"]),
        (2, 141 * 1024, ["half", "all (weights org/all)"]),
        (8, None, []),
        (1, 70 * 1024, ["half"]),
    ],
)
def test_other_variants_are_those_whose_memory_is_known_and_there(chips, memory_mib, names):
    variants = {
        "default": {"vram_minimum_gb": 1}, "half": {"vram_minimum_gb": 70}, "empty": None,
        "free": {"vram_minimum_gb": 0},
        "all": {"vram_minimum_gb": 282, "model_id": "org/all"},
        "fp4": {"vram_minimum_gb": 1, "precision_hardware": {"generation": "blackwell"}},
    }  # fmt: skip
    accelerator = replace(H200, memory_mib=memory_mib)
    assert other_variants(recipe(variants), "default", accelerator, chips) == names


def test_the_manifest_without_a_format_is_no_reason_to_refuse():
    for manifest in (None, {}, {"precision": None}):
        check_format(recipe(), "org/model", manifest, A2, "here")


@pytest.mark.parametrize(
    ("needs", "version", "good"),
    [("nightly", "0.9.0", True), (">=0.10.2", "0.10.1", False), ("0.10.2", "0.10.2", True), (None, "0.1.0", True)],
)
def test_a_word_in_the_place_of_a_version_says_nothing(needs, version, good):
    a_recipe = {**recipe(), "model": {"model_id": "org/model", "min_vllm_version": needs}}
    if good:
        check_release(a_recipe, {}, version, "mine", "here")
    else:
        with pytest.raises(PlanError, match=r"org/model needs vLLM >=0\.10\.2 or newer, release 'mine' has 0\.10\.1"):
            check_release(a_recipe, {}, version, "mine", "here")
