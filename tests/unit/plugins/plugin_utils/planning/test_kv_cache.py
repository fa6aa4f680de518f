# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.kv_cache import (
    Cache,
    cache_element,
    longest,
    request_bytes,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import Layers, ModelShape

GIB = 1024**3


def shape(*layers, element=2):
    return ModelShape(2880, 201088, 131072, element, layers)


GPT_OSS_20B = shape(Layers("full", 12, 8, 128), Layers("window", 12, 8, 128, span=128))
LLAMA_8B = shape(Layers("full", 32, 8, 256))
DEEPSEEK_V3 = shape(Layers("latent", 61, 1, 576))


def test_the_tokens_that_vllm_logged_on_one_h200():
    # "Available KV cache memory: 111.92 GiB", "GPU KV cache size: 4,597,388 tokens", "35.08x" of vLLM 0.25.1 with
    # gpt-oss-20b and its default of 8192 batched tokens. vLLM divides by what one request of full length takes.
    each = request_bytes(GPT_OSS_20B, 131072, 1, Cache(2, 8192))
    requests = 111.92 * GIB / each
    assert round(requests, 2) == 35.08
    assert requests * 131072 == pytest.approx(4_597_388, rel=1e-4)


@pytest.mark.parametrize(
    ("model", "tensor", "element", "each"),
    [
        (LLAMA_8B, 1, 2, 131072),
        (LLAMA_8B, 4, 2, 32768),
        # Each chip has a head at least.
        (LLAMA_8B, 16, 2, 16384),
        (LLAMA_8B, 1, 1, 65536),
        # All heads share one vector, which every chip has.
        (DEEPSEEK_V3, 1, 2, 70272),
        (DEEPSEEK_V3, 8, 2, 70272),
        # The index of sparse attention keeps its format.
        (shape(Layers("latent", 61, 1, 576, extra_bytes=132)), 8, 2, 70272 + 61 * 132),
        (shape(Layers("latent", 61, 1, 576, extra_bytes=132)), 8, 1, 35136 + 61 * 132),
    ],
)
def test_bytes_of_one_token_on_each_chip(model, tensor, element, each):
    assert request_bytes(model, 16000, tensor, Cache(element, 2048)) == 16000 * each


def test_a_window_holds_the_running_step_too_and_no_more_than_the_request():
    window = shape(Layers("window", 1, 1, 1, span=1024))
    assert request_bytes(window, 100_000, 1, Cache(2, 2048)) == (192 + 1) * 16 * 2
    assert request_bytes(window, 160, 1, Cache(2, 2048)) == (10 + 1) * 16 * 2


def test_a_chunk_holds_the_running_step_too():
    assert request_bytes(shape(Layers("chunk", 1, 1, 1, span=8192)), 100_000, 1, Cache(2, 2048)) == 10240 * 2


def test_decode_context_parallelism_divides_what_grows_with_the_request():
    assert request_bytes(DEEPSEEK_V3, 16000, 8, Cache(2, 2048, contexts=8)) == 2000 * 70272
    window = shape(Layers("window", 1, 1, 1, span=1024))
    assert request_bytes(window, 100_000, 1, Cache(2, 2048, contexts=8)) == (192 + 1) * 16 * 2


def test_sparse_attention_in_fp8_has_deepseeks_own_format_where_flashmla_runs():
    sparse = shape(Layers("latent", 61, 1, 576, extra_bytes=132, packed=656))
    assert request_bytes(sparse, 16000, 8, Cache(1, 2048, packed=True)) == 16000 * 61 * (656 + 132)
    assert request_bytes(sparse, 16000, 8, Cache(1, 2048)) == 16000 * 61 * (576 + 132)


def test_groups_take_blocks_of_one_pool_whatever_the_format():
    pool = shape(Layers("full", 1, block=256, page=1000), Layers("window", 2, span=128, block=64, page=1000))
    blocks = 40 + 2 * ((127 + 2048 + 63) // 64 + 1)
    assert (
        request_bytes(pool, 10240, 8, Cache(2, 2048)) == request_bytes(pool, 10240, 1, Cache(1, 2048)) == blocks * 1000
    )


def test_a_state_does_not_grow_with_the_request():
    state = shape(Layers("state", 3, state_bytes=1000))
    assert request_bytes(state, 100, 1, Cache(2, 2048)) == request_bytes(state, 10**6, 1, Cache(2, 2048)) == 2 * 3000
    assert request_bytes(state, 100, 4, Cache(2, 2048)) == 1500


@pytest.mark.parametrize(
    ("name", "element"),
    [
        (None, 2),
        ("auto", 2),
        ("fp8", 1),
        ("fp8_e4m3", 1),
        ("int8_per_token_head", 1),
        ("nvfp4", 0.5625),
        ("float32", 4),
    ],
)
def test_the_format_of_the_cache(name, element):
    assert cache_element({"kv-cache-dtype": name} if name else {}, LLAMA_8B) == element
    assert cache_element({}, shape(element=4)) == 4


@pytest.mark.parametrize(("name", "element"), [("fp8", 2), ("fp8_e4m3", 2), ("int8", 1), ("bfloat16", 2), ("auto", 2)])
def test_a_chip_without_fp8_keeps_its_cache_in_the_model_s_own_format(name, element):
    assert cache_element({"kv-cache-dtype": name}, LLAMA_8B, lacks_fp8=True) == element


@pytest.mark.parametrize(("limit", "tokens"), [(10**9, 131072), (70_000, 69632), (1024, 1024), (1023, 0)])
def test_the_longest_request_that_fits_in_steps(limit, tokens):
    assert longest(lambda length: length <= limit, 131072) == tokens
