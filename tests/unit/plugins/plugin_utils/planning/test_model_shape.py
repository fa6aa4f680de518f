# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.kv_cache import Cache, request_bytes
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import (
    Layers,
    shape_of,
    shape_problem,
)

# Excerpts of the config.json of models, as they are published.
GPT_OSS_20B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
}
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
DEEPSEEK_V4_FLASH = {
    "model_type": "deepseek_v4",
    "hidden_size": 4096,
    "num_hidden_layers": 43,
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "index_head_dim": 128,
    "sliding_window": 128,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
}
QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
NEMOTRON_NANO_9B = {
    "model_type": "nemotron_h",
    "hidden_size": 4480,
    "vocab_size": 131072,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 56,
    "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 80,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
}
KIMI_LINEAR = {
    **DEEPSEEK_V3,
    "model_type": "kimi_linear",
    "num_hidden_layers": 27,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [1, 2],
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
}
GEMMA_3_27B = {
    **LLAMA_8B,
    "model_type": "gemma3_text",
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}
FULL_SCALE = (16 * 128 * 2 + 32 * 128) * 3 * 2


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (GPT_OSS_20B, [Layers("window", 12, 8, 128, span=128), Layers("full", 12, 8, 128)]),
        (LLAMA_8B, [Layers("full", 32, 8, 256)]),
        (DEEPSEEK_V3, [Layers("latent", 61, 1, 576)]),
        # Sparse attention: 128 bytes and a scale for each token and layer.
        (
            {**DEEPSEEK_V3, "model_type": "deepseek_v32", "index_head_dim": 128},
            [Layers("latent", 61, 1, 576, extra_bytes=132, packed=656)],
        ),
        (GEMMA_3_27B, [Layers("window", 52, 16, 256, span=1024), Layers("full", 10, 16, 256)]),
        (
            QWEN3_NEXT,
            [
                Layers("state", 36, state_bytes=FULL_SCALE + 2 * 32 * 128 * 128),
                Layers("full", 12, 2, 512),
            ],
        ),
        (
            {**QWEN3_NEXT, "mamba_ssm_dtype": "float32", "num_hidden_layers": 4},
            [Layers("state", 3, state_bytes=FULL_SCALE + 4 * 32 * 128 * 128), Layers("full", 1, 2, 512)],
        ),
        (
            NEMOTRON_NANO_9B,
            [
                Layers("state", 27, state_bytes=2 * (128 * 80 + 2 * 8 * 128) * 3 + 2 * 128 * 80 * 128),
                Layers("full", 4, 8, 256),
            ],
        ),
        (
            KIMI_LINEAR,
            [
                Layers("latent", 7, 1, 576),
                Layers("state", 20, state_bytes=2 * 3 * 32 * 128 * 3 + 4 * 32 * 128 * 128),
            ],
        ),
        # LFM2: short convolutions between the layers with attention.
        (
            {**LLAMA_8B, "layer_types": ["conv", "conv", "full_attention"], "num_hidden_layers": 3, "conv_L_cache": 3},
            [Layers("state", 2, state_bytes=2 * 4096 * 2), Layers("full", 1, 8, 256)],
        ),
        # Gemma 4: larger heads in the global layers, and the last ones share a cache.
        (
            {
                **GPT_OSS_20B,
                "num_hidden_layers": 4,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "global_head_dim": 512,
                "num_global_key_value_heads": 2,
                "num_kv_shared_layers": 2,
            },
            [Layers("window", 1, 8, 128, span=128), Layers("full", 1, 2, 1024)],
        ),
        # Llama 4: chunks.
        (
            {
                **LLAMA_8B,
                "layer_types": ["chunked_attention", "full_attention"],
                "num_hidden_layers": 2,
                "attention_chunk_size": 8192,
            },
            [Layers("chunk", 1, 8, 256, span=8192), Layers("full", 1, 8, 256)],
        ),
        # Qwen2 names a window that it does not use, Phi-3 one as long as its context.
        ({**LLAMA_8B, "sliding_window": 4096, "use_sliding_window": False}, [Layers("full", 32, 8, 256)]),
        ({**LLAMA_8B, "sliding_window": 131072}, [Layers("full", 32, 8, 256)]),
        ({**LLAMA_8B, "sliding_window": 4096}, [Layers("window", 32, 8, 256, span=4096)]),
        # An encoder keeps nothing.
        ({**LLAMA_8B, "model_type": "xlm-roberta"}, []),
    ],
)
def test_the_layers_of_models_by_the_kind_of_their_attention(config, layers):
    assert list(shape_of(config).layers) == layers


def test_the_sizes_besides_the_layers():
    shape = shape_of(GPT_OSS_20B)
    assert (shape.hidden, shape.vocabulary, shape.context, shape.element_bytes) == (2880, 201088, 131072, 2)
    assert shape_of({**LLAMA_8B, "torch_dtype": "float32"}).element_bytes == 4


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"model_type": "whisper", "d_model": 1280},
        {**LLAMA_8B, "layer_types": ["full_attention", "of the future"]},
        {**LLAMA_8B, "layer_types": ["chunked_attention"]},
        {**LLAMA_8B, "hybrid_override_pattern": "M?"},
        {**LLAMA_8B, "mamba_n_heads": 8},
        # Latent vectors of a model that vLLM serves with full heads, and a cache of compressed tokens.
        {**DEEPSEEK_V3, "model_type": "minicpm3"},
        {**DEEPSEEK_V3, "compress_ratios": [1, 4, 128]},
        {**LLAMA_8B, "model_type": "minimax_m3_text"},
        {**LLAMA_8B, "num_hidden_layers": "many"},
        {**LLAMA_8B, "num_attention_heads": None, "num_key_value_heads": None},
    ],
)
def test_a_model_that_is_not_understood_has_no_shape(config):
    assert shape_of(config) is None
    assert shape_problem(config or {})


@pytest.mark.parametrize(
    "more",
    [
        {"index_topk_freq": 3},
        {"index_topk_pattern": "FF" + "SSF" * 25 + "S"},
        {"index_topk_freq": 3, "index_skip_topk_offset": 2},
    ],
)
def test_layers_that_share_the_index_of_another_keep_none(more):
    # "54,728 B/token all layers" of GLM-5.2 in DeepSeek's FP8 format: pull request 82 of local-inference-lab/vllm.
    config = {**DEEPSEEK_V3, "model_type": "glm_moe_dsa", "index_head_dim": 128, "num_hidden_layers": 78, **more}
    assert request_bytes(shape_of(config), 16000, 8, Cache(1, 8192, packed=True)) / 16000 == pytest.approx(
        54_728, rel=0.001
    )


@pytest.mark.parametrize(("tokens", "running", "blocks"), [(30_000, 16_384, 6800), (2**20, 8192, 7450)])
def test_a_request_of_deepseek_v4_takes_as_many_blocks_as_vllm_counts(tokens, running, blocks):
    # get_kv_cache_groups and max_memory_usage_pages of vLLM 0.32.0, with the caches of its vllm/models/deepseek_v4.
    assert request_bytes(shape_of(DEEPSEEK_V4_FLASH), tokens, 8, Cache(1, running)) == blocks * 1_002_240


def test_the_caches_of_deepseek_v4_share_a_pool_of_blocks():
    # "Cache groups observed" of vLLM 0.28.1 with DeepSeek-V4-Flash (issue 54703 of vllm-project/vllm): 62 layers of
    # attention and index with 1,002,240 bytes for 256 tokens, two groups of windows of 64, states of 4 and of 8.
    layers = shape_of(DEEPSEEK_V4_FLASH).layers
    assert {group.page for group in layers} == {1_002_240}
    assert [(group.kind, group.count, group.block, group.span) for group in layers] == [
        ("full", 1, 256, 0),
        ("window", 2, 64, 128),
        ("window", 1, 4, 8),
        ("window", 1, 8, 128),
    ]
    assert shape_problem(DEEPSEEK_V4_FLASH) == ""
    assert (
        shape_problem({**DEEPSEEK_V4_FLASH, "compress_ratios": [2] * 43})
        == "compress_ratios: caches of compressed tokens"
    )


def test_what_nobody_reads_takes_no_shape_away():
    more = {"use_cache_x": None, "quantization_config": {"a": {"b": {"c": 1}}}, "rope_theta": 1e18, "head_dim_x": "\n"}
    plain = shape_of(GPT_OSS_20B)
    assert plain and shape_of({**GPT_OSS_20B, **more}) == plain


ODD = (
    float("nan"),
    float("inf"),
    10**300,
    -(10**9),
    -1,
    0,
    10**9,
    10**12,
    1.5,
    True,
    "x",
    [],
    {},
    None,
    [float("nan")],
)


@pytest.mark.parametrize(
    "config", [GPT_OSS_20B, LLAMA_8B, DEEPSEEK_V3, DEEPSEEK_V4_FLASH], ids=lambda config: config["model_type"]
)
def test_whatever_the_author_of_a_model_writes_there_is_a_shape_that_can_be_computed_or_none(config):
    for key, odd in ((key, odd) for key in (*config, "num_experts", "moe_intermediate_size") for odd in ODD):
        shape = shape_of({**config, key: odd})
        if shape:
            assert sum(layers.count for layers in shape.layers) <= 10_000
            float(shape.experts * shape.hidden * shape.context)
