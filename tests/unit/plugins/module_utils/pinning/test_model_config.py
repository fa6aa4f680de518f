# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.pinning.model_config import (
    excerpt_of,
    problem_of,
    render_excerpt,
)

WEIGHTS = Path(__file__).parents[5] / "catalog" / "weights"


def test_what_the_memory_follows_from_is_kept_and_nothing_else():
    config = {"hidden_size": 8, "rope_theta": 1e6, "eos_token_id": [1, 2], "layer_types": ["full_attention"]}
    assert excerpt_of(json.dumps(config).encode()) == {"hidden_size": 8, "layer_types": ["full_attention"]}


@pytest.mark.parametrize("part", ["text_config", "llm_config", "thinker_config"])
def test_of_a_model_of_several_parts_the_language_model_counts(part):
    inner = {"hidden_size": 16, "model_type": "inner", "num_hidden_layers": 2}
    nested = {"text_config": inner} if part == "thinker_config" else inner
    config = {"hidden_size": 8, "model_type": "outer", "architectures": ["Outer"], part: nested}
    assert excerpt_of(json.dumps(config).encode()) == {**inner, "architectures": ["Outer"]}


@pytest.mark.parametrize("content", [b"", b"no JSON", b"[]", b"null", b"[" * 100_000])
def test_a_file_that_is_no_configuration_has_no_excerpt(content):
    assert excerpt_of(content) == {}


@pytest.mark.parametrize(
    "value",
    [
        *("a\nb", "x" * 2001, [1] * 2001, [[[1]]], {"a": {"b": {"c": 1}}}, {"a\n": 1}, ["a\n"]),
        *(float("nan"), float("inf"), 1e300, 10**300, -(10**16), [10**16]),
    ],
)
def test_what_a_manifest_cannot_hold_is_left_out(value):
    assert problem_of(value) is not None
    assert excerpt_of(json.dumps({"hidden_size": 8, "layer_types": value}).encode()) == {"hidden_size": 8}


def test_the_lines_read_back_as_the_same_values():
    config = {
        "model_type": "no",
        "hidden_size": 8,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "linear_attn_config": {"kda_layers": [1, 2, 3], "head_dim": 128},
        "use_sliding_window": False,
        "architectures": ["A: b"],
    }
    lines = render_excerpt(config)
    assert yaml.safe_load("\n".join(lines)) == {"config": config}
    assert lines == render_excerpt(dict(reversed(config.items())))


ROPE = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}
PLAIN = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def gpt_oss(layers, experts):
    """Return the config.json of gpt-oss, byte for byte."""
    config = {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": 200002,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "num_local_experts": experts,
        "output_router_logits": False,
        "pad_token_id": 199999,
        "quantization_config": {"modules_to_not_convert": PLAIN, "quant_method": "mxfp4"},
        "rms_norm_eps": 1e-05,
        "rope_scaling": ROPE,
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "transformers_version": "4.55.0.dev0",
        "use_cache": True,
        "vocab_size": 201088,
    }
    return (json.dumps(config, indent=2) + "\n").encode()


@pytest.mark.parametrize(("model", "layers", "experts"), [("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)])
def test_the_catalogue_has_the_excerpt_of_the_very_file_that_it_pins(model, layers, experts):
    manifest = yaml.safe_load((WEIGHTS / "openai" / f"{model}.yml").read_text())
    content = gpt_oss(layers, experts)
    assert hashlib.sha256(content).hexdigest() == manifest["files"]["config.json"]["sha256"]
    assert manifest["config"] == excerpt_of(content)
