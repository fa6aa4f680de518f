# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.versions import satisfies
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.conditions import applies, holds


@pytest.mark.parametrize(
    ("version", "spec", "expected"),
    [
        ("0.33.0", "0.33.0", True),
        ("0.33.0", "0.33", True),
        ("0.33.1", "0.33", False),
        ("0.33.0", "==0.33", True),
        ("0.33.0", "!=0.33", False),
        ("0.32.0", "!=0.33", True),
        ("0.24.0", ">=0.24", True),
        ("0.23.9", ">=0.24", False),
        ("0.24", ">0.24.0", False),
        ("0.24.0", "<=0.24", True),
        ("0.24", ">=0.24.0", True),
        ("0.24", "==0.24.0", True),
        ("0.24", "<0.24.0", False),
        ("0.9.2", "<0.10", True),
        ("0.33.0", ">=0.24,<0.33", False),
        ("0.32.5", ">=0.24, <0.33", True),
        ("580.65.06", ">=580.65.6", True),
        ("2.13.0+rocm10.0.0", "2.13.0", True),
    ],
)
def test_versions_are_compared_by_number(version, spec, expected):
    assert satisfies(version, spec) is expected


@pytest.mark.parametrize("spec", ["", ">=", "=>0.24", "~=0.24", ">=0.24 <0.33", ">=new", "latest"])
def test_a_spec_of_another_form_is_refused(spec):
    with pytest.raises(ValueError, match=f"found '{spec}', expected a form like '>=0.24,<0.33'"):
        satisfies("0.33.0", spec)


FACTS = {
    "vllm": "0.33.0",
    "driver": None,
    "mec_firmware": 177,
    "tensor_parallel_size": 2,
    "memory_gib": 79.6,
    "accelerator": ("h100_8x", "h100"),
    "generation": ("gfx942", "amd"),
    "stack": "cuda",
    "preset": None,
    "features": ["a", "b"],
}


@pytest.mark.parametrize(
    ("name", "wanted", "expected"),
    [
        ("vllm", ">=0.24", True),
        ("vllm", ["0.32.0", "0.33.0"], True),
        ("vllm", "<0.33", False),
        ("driver", ">=1", None),
        ("cuda", ">=1", None),
        ("mec_firmware", "<177", False),
        ("mec_firmware", 177, True),
        ("tensor_parallel_size", 2, True),
        ("tensor_parallel_size", [4, 8], False),
        ("tensor_parallel_size", ">=2,<8", True),
        ("memory_gib", "<80", True),
        ("accelerator", "h100", True),
        ("accelerator", "h100_8x", True),
        ("accelerator", ["h200", "h100"], True),
        ("accelerator", ["h200"], False),
        ("generation", "amd", True),
        ("stack", ["cuda", "rocm"], True),
        ("preset", "latency", None),
        ("features", ["a", "b"], True),
        ("features", "a", True),
        ("features", ["a", "c"], False),
    ],
)
def test_one_condition(name, wanted, expected):
    assert holds(name, wanted, FACTS) is expected


def test_no_feature_is_a_known_fact():
    assert holds("features", ["a"], {"features": []}) is False


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ({"x": "present"}, {"x": 1}, True),
        ({"x": "present"}, {}, False),
        ({"x": "absent"}, {}, True),
        ({"x": "absent"}, {"x": 1}, False),
        ({"x": 4}, {"x": 4}, True),
        ({"x": "4"}, {"x": 4}, True),
        ({"x": 4}, {}, False),
        ({"x": True}, {"x": True}, True),
        ({"x": True}, {"x": 1}, False),
        ({"x": 1}, {"x": True}, False),
        ({"x": ">=2"}, {"x": 4}, True),
        ({"x": "<2"}, {"x": 4}, False),
        ({"x": ">=2"}, {"x": "a text"}, False),
        ({"x": ">=2"}, {"x": {"a": 1}}, False),
        ({"x": "fp8", "y": "absent"}, {"x": "fp8"}, True),
        ({"x": "fp8", "y": "present"}, {"x": "fp8"}, False),
        ({"x": ["fp8", "fp8_e4m3"]}, {"x": "fp8_e4m3"}, True),
        ({"x": ["fp8", "fp8_e4m3"]}, {"x": "auto"}, False),
        ({"x": ["absent", ">4"]}, {}, True),
        ({"x": ["absent", ">4"]}, {"x": 8}, True),
        ({"x": ["absent", ">4"]}, {"x": 4}, False),
        ({"x.y": "mtp"}, {"x": {"y": "mtp"}}, True),
        ({"x.y": "mtp"}, {"x": {"z": "mtp"}}, False),
        ({"x.y": "mtp"}, {"x": "mtp"}, False),
        ({"x.y": "absent"}, {}, True),
    ],
)
def test_what_came_out(wanted, found, expected):
    assert holds("args", wanted, {"args": found}) is expected


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ({"attention-backend": "TRITON_ATTN"}, {"attention-backend": "triton_attn"}, True),
        ({"attention-backend": "TRITON_ATTN"}, {"attention-config": {"backend": "triton_attn"}}, True),
        ({"attention-backend": "TRITON_ATTN"}, {"attention-config": {"backend": "FLASHINFER"}}, False),
        ({"attention-config.backend": "TRITON_ATTN"}, {"attention-backend": "TRITON_ATTN"}, True),
        ({"attention-backend": "absent"}, {"attention-config": {"backend": "FLASHINFER"}}, False),
        ({"attention-backend": "absent"}, {"attention-config": {"flash_attn_version": 3}}, True),
        ({"attention-backend": "absent"}, {"attention-backend": "auto"}, True),
        ({"attention-backend": "absent"}, {"attention-config": {"backend": None}}, True),
        ({"attention-backend": "present"}, {"attention-backend": "Auto"}, False),
        (
            {"attention-backend": "FLASHINFER"},
            {"attention-backend": "auto", "attention-config": {"backend": "flashinfer"}},
            True,
        ),
        ({"moe-backend": "flashinfer_trtllm"}, {"moe-backend": "FlashInfer-TRTLLM"}, True),
        ({"moe-backend": "flashinfer_trtllm"}, {"kernel-config": {"moe_backend": "flashinfer-trtllm"}}, True),
        ({"speculative-config.method": "mtp"}, {"spec-method": "mtp"}, True),
        ({"dtype": "auto"}, {"dtype": "auto"}, True),
        ({"x": "-1"}, {"x": -1}, True),
    ],
)
def test_every_spelling_of_an_argument_is_one_setting(wanted, found, expected):
    assert holds("args", wanted, {"args": found}) is expected


def test_a_variable_of_an_old_release_is_the_flag_too():
    facts = {"args": {}, "env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}}
    assert holds("args", {"attention-backend": "TRITON_ATTN"}, facts) is True
    assert holds("args", {"attention-backend": "absent"}, facts) is False


def test_a_variable_of_the_recipe_is_nothing_that_the_instance_sets():
    facts = {"instance": {}, "args": {}, "env": {"VLLM_ATTENTION_BACKEND": "TRITON_ATTN"}}
    assert holds("instance", {"attention-backend": "absent"}, facts) is True
    assert holds("instance", {"attention-backend": "x"}, {"instance": {"attention-config.backend": "X"}}) is True


def test_the_case_of_a_variable_counts():
    assert holds("env", {"X": "UV"}, {"env": {"X": "uv"}}) is False


def test_a_wrong_form_is_told_and_does_not_fall_through():
    with pytest.raises(ValueError, match="found \\['x'\\], expected a mapping of names to requirements"):
        holds("env", ["x"], {"env": {}})
    with pytest.raises(ValueError, match="many"):
        holds("count", "many", {"count": 8})


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, True),
        ({"when": None, "unless": None}, True),
        ({"when": {"vllm": ">=0.24", "stack": "cuda"}}, True),
        ({"when": {"vllm": ">=0.24", "stack": "rocm"}}, False),
        # A fact that nobody knows: the condition does not hold, neither as `when` nor as `unless`.
        ({"when": {"driver": ">=1"}}, False),
        ({"unless": {"driver": ">=1"}}, True),
        ({"unless": {"preset": "throughput"}}, True),
        ({"unless": {"mec_firmware": ">=177"}}, False),
        # All of `unless` have to hold for the exception.
        ({"unless": {"mec_firmware": ">=177", "stack": "rocm"}}, True),
        ({"unless": {"mec_firmware": ">=177", "driver": ">=1"}}, True),
        ({"when": {"vllm": ">=0.24"}, "unless": {"features": ["a"]}}, False),
    ],
)
def test_when_a_rule_is_in_force(rule, expected):
    assert applies(rule, FACTS) is expected
