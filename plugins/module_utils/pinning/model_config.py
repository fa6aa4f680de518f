# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a model's config.json that goes into its manifest: what the memory of the model follows from."""

from __future__ import annotations

import json
from typing import Any, Mapping

from ..common.foreign_json import load_json
from ..common.kinds import name_kind

# Where models of several parts have the configuration of their language model, in the order of the search.
TEXT_PARTS = ("thinker_config", "text_config", "llm_config", "language_config", "language_model_config")

# The keys that plans read; docs/reference/recipes.md says what they do. Others stay in config.json.
KEYS = (
    *("model_type", "architectures", "dtype", "torch_dtype"),
    *("hidden_size", "vocab_size", "max_position_embeddings", "num_hidden_layers", "layer_types"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim", "num_kv_shared_layers"),
    *("global_head_dim", "num_global_key_value_heads", "intermediate_size", "moe_intermediate_size"),
    *("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts", "first_k_dense_replace"),
    *("decoder_sparse_step", "interleave_moe_layer_step"),
    *("sliding_window", "use_sliding_window", "sliding_window_pattern", "attention_chunk_size"),
    *("kv_lora_rank", "qk_rope_head_dim", "index_head_dim", "compress_ratios"),
    *("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern"),
    *("full_attention_interval", "linear_attn_config", "linear_num_key_heads", "linear_num_value_heads"),
    *("linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"),
    *("hybrid_override_pattern", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"),
    *("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"),
    *("mamba_ssm_cache_dtype", "mamba_ssm_dtype", "conv_L_cache", "attn_type_list"),
)
# A longer text or list is no part of a model's shape; the largest models have some hundred layers.
_MOST = 2000
# Products of several sizes stay within a float.
_LARGEST = 10**15


def excerpt_of(content: bytes) -> dict[str, Any]:
    """Return what a manifest keeps of a config.json, empty for a file that is none."""
    try:
        config = load_json(content)
    except ValueError:
        return {}
    if not isinstance(config, Mapping):
        return {}
    text = _text_part(config)
    # The language model's keys go before those of the whole.
    found = {key: text.get(key, config.get(key)) for key in KEYS}
    return {key: value for key, value in found.items() if value is not None and problem_of(value) is None}


def problem_of(value: Any, depth: int = 0) -> str | None:
    """Return why a value cannot stand in a manifest's config, None where it can."""
    if isinstance(value, (bool, int, float)):
        # Also NaN is none of these.
        return None if -_LARGEST <= value <= _LARGEST else "a number beyond any size of a model"
    if isinstance(value, str) and len(value) <= _MOST and value.isprintable():
        return None
    if isinstance(value, (list, Mapping)) and depth < 2 and len(value) <= _MOST:
        if isinstance(value, Mapping) and not all(isinstance(key, str) and key.isprintable() for key in value):
            return "a mapping with keys that are no texts"
        entries = list(value.values()) if isinstance(value, Mapping) else value
        return next((problem for problem in (problem_of(entry, depth + 1) for entry in entries) if problem), None)
    return name_kind(value)


def render_excerpt(config: Mapping[str, Any]) -> list[str]:
    """Return the lines of a manifest's config: one for each key, and one for each entry of a long list."""
    lines = ["config:"]
    for key, value in sorted(config.items()):
        if not isinstance(value, list) or len(value) <= 4:
            lines.append(f"  {key}: {_json(value)}")
            continue
        lines.append(f"  {key}:")
        lines += [f"    - {_json(entry)}" for entry in value]
    return lines


def _text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the language model of a model of several parts, else the whole."""
    for name in TEXT_PARTS:
        part = config.get(name)
        if isinstance(part, Mapping):
            return _text_part(part)
    return config


def _json(value: Any) -> str:
    # A text in JSON is one in YAML.
    return json.dumps(value, ensure_ascii=False)
