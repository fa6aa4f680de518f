# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.engine_memory import Engine
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.memory import Request, model_request
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import (
    Layers,
    ModelShape,
    shape_of,
)

GIB = 1024**3
H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, 143771)
# The shape and the bytes of gpt-oss-20b.
LAYERS = (Layers("full", 12, 8, 128), Layers("window", 12, 8, 128, span=128))
SHAPE = ModelShape(2880, 201088, 131072, 2, LAYERS)
WEIGHTS = 13_761_306_904
REQUEST = Request(SHAPE, WEIGHTS, {}, H200, 131072)
MOE = replace(REQUEST, shape=replace(SHAPE, experts=24 * 32 * 3 * 2880 * 2880, expert_width=2880), precision="mxfp4")
# Qwen3-Coder-480B-A35B-Instruct, and the bytes of its BF16 files.
CODER = {
    "model_type": "qwen3_moe", "hidden_size": 6144, "num_hidden_layers": 62, "num_attention_heads": 96, "head_dim": 128,
    "num_key_value_heads": 8, "num_experts": 160, "moe_intermediate_size": 2560, "intermediate_size": 8192,
    "vocab_size": 151936, "decoder_sparse_step": 1, "dtype": "bfloat16", "max_position_embeddings": 262144,
}  # fmt: skip
CODER_PARAMETERS = 480_154_875_392


def test_weights_that_stay_in_the_memory_of_the_host_are_not_on_the_chips():
    """UVAOffloader takes cpu-offload-gb x 1024**3 bytes of each chip's parameters."""
    whole = REQUEST.footprint()
    found = replace(REQUEST, args={"cpu-offload-gb": "5"}).footprint()
    assert (whole.weights - found.weights, whole.cache, whole.overhead) == (5 * GIB, found.cache, found.overhead)
    assert replace(REQUEST, args={"cpu-offload-gb": 100}).footprint().weights == 0


@pytest.mark.parametrize(
    ("args", "layers"),
    [
        # Of each 4 of the 24 layers the last is in the memory of the host; the chip has a buffer for the next one.
        ({"offload-group-size": 4}, 6 - 1),
        ({"offload-group-size": 4, "offload-num-in-group": "3", "offload-prefetch-step": 2}, 18 - 2),
        ({"offload-group-size": 24, "offload-prefetch-step": 8}, 0),
        ({"offload-group-size": 4, "offload-backend": "uva"}, 0),
        ({"offload-group-size": 4, "offload-params": ["gate_up_proj"]}, 0),
    ],
)
def test_layers_that_vllm_fetches_from_the_host_are_not_on_the_chips(args, layers):
    """PrefetchOffloader takes the last offload-num-in-group layers of each group."""
    embeddings = 2 * 201088 * 2880 * 2
    found = replace(REQUEST, args=args).footprint().weights
    assert REQUEST.footprint().weights - found == pytest.approx((WEIGHTS - embeddings) * layers / 24)


@pytest.mark.parametrize(
    ("method", "precision", "release", "gib"),
    [
        # neuralmagic's AutoFP8 shows "Loading model weights took 8.4595 GB" of Llama 3 8B with its matrices in FP8.
        ("fp8", "", "0.33.0", 8.4595),
        ("fp8_per_block", "", "0.17.1", 8.4595),
        # Weights are loaded whole first (vllm-project/vllm issue 7200), have eight bits already, or stay as they are.
        ("fp8", "", "0.13.0", 14.96),
        ("fp8", "fp8", "0.33.0", 14.96),
        (None, "", "0.33.0", 14.96),
    ],
)
def test_plain_weights_that_vllm_quantizes_have_half_the_size(method, precision, release, gib):
    config = {
        "model_type": "llama", "hidden_size": 4096, "vocab_size": 128256, "max_position_embeddings": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    }  # fmt: skip
    manifest = {"precision": precision, "config": config, "files": {"model.safetensors": {"size": 16_060_522_496}}}
    args = {"quantization": method} if method else {}
    found = model_request(manifest, args, H200, 8192, Engine(release))
    assert found.footprint().weights / GIB == pytest.approx(gib, rel=0.001)


def test_what_vllm_measured_on_one_h200():
    # The start log of vLLM 0.25.1: at 0.92 of 139.8 GiB it had 111.92 GiB for the cache.
    found = replace(MOE, args={"gpu-memory-utilization": 0.92}, engine=Engine("0.25.1")).footprint()
    assert 139.8 * 0.92 - (found.weights + found.overhead) / GIB == pytest.approx(111.92, rel=0.01)
    assert found.describe() == (
        "12.8 GiB of weights, 3.2 GiB of KV cache for one request of 131072 tokens and 3.8 GiB for activations and "
        "graphs on each chip"
    )


def test_weights_as_large_as_vllm_reports_them():
    # gpt-oss-20b on an H100 and an H200, tests/gpu/results: 13.02 GiB.
    assert MOE.footprint().weights / GIB == pytest.approx(13.02, rel=0.02)


@pytest.mark.parametrize("more", [{"enable-expert-parallel": True}, {}])
def test_data_parallelism_divides_the_experts_and_nothing_else(more):
    shape = shape_of(CODER)
    # Attention, embeddings and routers: 12.07 billion parameters, from the sizes of their matrices.
    attention = 62 * (2 * 6144 * 96 * 128 + 2 * 6144 * 8 * 128)
    others = attention + 2 * 151936 * 6144 + 62 * 160 * 6144
    assert shape.experts == pytest.approx(CODER_PARAMETERS - others, rel=0.001)
    request = Request(shape, 2 * CODER_PARAMETERS, {"data-parallel-size": 8, **more}, H200, 262144)
    found = request.footprint()
    assert found.weights == pytest.approx(2 * others + 2 * (CODER_PARAMETERS - others) / 8, rel=0.001)
    assert found.chips == 8
    both = {"data-parallel-size": 4, "tensor-parallel-size": 2, **more}
    half = replace(request, args=both).footprint()
    assert half.weights == pytest.approx(others + 2 * (CODER_PARAMETERS - others) / 8, rel=0.001)


@pytest.mark.parametrize("config", [{"num_redundant_experts": 32}, '{"num_redundant_experts": 32}'])
def test_copies_of_experts_for_their_balance_count(config):
    args = {"data-parallel-size": 8, "enable-expert-parallel": True}
    request = Request(shape_of(CODER), 2 * CODER_PARAMETERS, args, H200, 262144)
    balanced = replace(request, args={**args, "enable-eplb": True, "eplb-config": config})
    more = balanced.footprint().weights - request.footprint().weights
    assert more == pytest.approx(request.expert_bytes / 8 * 32 / 160)
    off = replace(balanced, args={**balanced.args, "enable-eplb": False})
    assert off.footprint().weights == request.footprint().weights


@pytest.mark.parametrize(
    ("precision", "weights", "experts"),
    [
        ("", 2 * CODER_PARAMETERS, 936.2e9),
        ("fp8", 482e9, 468.1e9),
        ("compressed_tensors", 270e9, 248.7e9),
        ("nvfp4", 280e9, 263.3e9),
        # Files that are smaller than what the configuration says: all of them are experts.
        ("mxfp4", 200e9, 200e9),
    ],
)
def test_the_bytes_of_the_experts(precision, weights, experts):
    request = Request(shape_of(CODER), int(weights), {}, H200, 1024, precision)
    assert request.expert_bytes == pytest.approx(experts, rel=0.001)


@pytest.mark.parametrize(
    ("args", "chips", "share", "cache"),
    [
        ({"tensor-parallel-size": 2}, 2, 2, 2),
        ({"tensor-parallel-size": "4"}, 4, 4, 4),
        ({"pipeline-parallel-size": 2}, 2, 2, 2),
        # Copies of the weights, and requests of their own.
        ({"data-parallel-size": 2}, 1, 1, 1),
    ],
)
def test_what_is_spread_over_chips(args, chips, share, cache):
    request = replace(REQUEST, engine=Engine("0.25.1"))
    one, found = request.footprint(), replace(request, args=args).footprint()
    assert found.chips == chips
    assert found.weights == one.weights / share
    assert found.cache == one.cache / cache


@pytest.mark.parametrize(
    ("release", "args", "steps"),
    [
        ("0.25.1", {}, 1),
        ("0.30.0", {}, 2),
        ("0.30.0", {"async-scheduling": False}, 1),
        ("0.30.0", {"no-async-scheduling": True}, 1),
        ("0.30.0", {"pipeline-parallel-size": 4}, 5),
    ],
)
def test_a_window_holds_the_tokens_of_all_steps_that_run_at_once(release, args, steps):
    args = {"max-num-batched-tokens": 2048, **args}
    stages = args.get("pipeline-parallel-size", 1)
    found = replace(REQUEST, args=args, engine=Engine(release)).footprint().cache
    window = (-(-(127 + steps * 2048) // 16) + 1) * 16 * 12 * 8 * 128 * 2
    assert found == (131072 * 12 * 8 * 128 * 2 + window) / stages


@pytest.mark.parametrize(
    ("args", "padded"),
    [
        # 2880 for each of two chips is 1440, which FlashInfer's kernels round to 1536, and 720 to 768.
        ({"tensor-parallel-size": 2}, 1536 / 1440),
        ({"data-parallel-size": 2}, 1536 / 1440),
        ({"tensor-parallel-size": 2, "data-parallel-size": 2}, 768 / 720),
        ({"tensor-parallel-size": 2, "data-parallel-size": 2, "enable-expert-parallel": True}, 2944 / 2880),
    ],
)
def test_experts_are_padded_by_what_data_parallelism_leaves_of_their_width(args, padded):
    b200 = replace(H200, model="b200", generation="blackwell", compute_capability="10.0")
    request = replace(MOE, accelerator=b200, args=args)
    chips = args.get("tensor-parallel-size", 1) * args.get("data-parallel-size", 1)
    others = (WEIGHTS - request.expert_bytes) / args.get("tensor-parallel-size", 1)
    # The hidden size of 2880 is rounded to 3072.
    experts = request.expert_bytes / chips * padded * 3072 / 2880
    assert request.footprint().weights == pytest.approx(others + experts, rel=1e-9)


def test_an_atlas_300i_keeps_a_workspace_as_large_as_the_cache():
    duo = Accelerator("ascend_310p", "cann", "ascend_310p", "", 2, 44 * 1024)
    other = replace(duo, model="ascend_a2", generation="ascend_a2")
    found, plain = (replace(REQUEST, accelerator=chip).footprint() for chip in (duo, other))
    assert (found.cache, found.overhead) == (plain.cache, plain.overhead + plain.cache)


@pytest.mark.parametrize(
    ("accelerator", "args", "seqs"),
    [
        (replace(H200, memory_mib=180 * 1024), {}, 1024),
        (H200, {}, 1024),
        (replace(H200, model="a100", memory_mib=80 * 1024), {}, 256),
        (replace(H200, model="gb10", count=1, memory_mib=119 * 1024), {}, 256),
        (replace(H200, memory_mib=48 * 1024), {}, 256),
        (H200, {"max-num-seqs": "64"}, 64),
        (H200, {"performance-mode": "throughput"}, 2048),
        (H200, {"performance-mode": "throughput", "max-num-seqs": 512}, 512),
    ],
)
def test_the_logits_are_those_of_as_many_requests_as_vllm_takes_at_once(accelerator, args, seqs):
    found = Request(SHAPE, WEIGHTS, {**args, "enforce-eager": True}, accelerator, 131072).footprint()
    step = {64: 8192}.get(seqs, 0) * 2880 * 27
    assert found.overhead == max(seqs * 201088 * 14, step) + 0.5 * GIB


def test_a_large_batch_counts_where_the_vocabulary_is_small():
    small = replace(REQUEST, shape=replace(SHAPE, vocabulary=1000), args={"max-num-batched-tokens": "64k"})
    assert small.footprint().overhead == 64_000 * 2880 * 27 + 1.1 * GIB


def test_a_cpu_has_no_overhead_here():
    assert replace(REQUEST, accelerator=Accelerator("cpu", "cpu", "cpu", "cpu", 1, 1)).footprint().overhead == 0


def test_the_length_is_what_is_set_else_the_model_s_own():
    assert REQUEST.tokens == 131072
    assert replace(REQUEST, args={"max-model-len": "16k"}).tokens == 16000
    assert replace(REQUEST, args={"max-model-len": "auto"}).tokens == 0


@pytest.mark.parametrize(("gib", "tokens"), [(20, 131072), (17, 40960), (16, 0), (None, 131072)])
def test_the_longest_context_that_fits_and_no_very_short_one(gib, tokens):
    chip = replace(H200, model="l4", memory_mib=gib and gib * 1024)
    request = replace(REQUEST, accelerator=chip, args={"max-num-batched-tokens": "2048"})
    assert request.longest_context() == tokens
    assert request.fits(tokens or 4096) == bool(tokens)
    assert tokens in (0, 131072) or not request.fits(tokens + 1024)


def test_a_number_that_the_parser_will_refuse_is_no_size():
    assert replace(REQUEST, args={"tensor-parallel-size": "two"}).footprint().chips == 1
