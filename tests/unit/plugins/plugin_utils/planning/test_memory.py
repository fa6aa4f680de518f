# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import Accelerator
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.memory import Request
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.model_shape import Layers, ModelShape

GIB = 1024**3
H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, 143771)
# The shape and the bytes of gpt-oss-20b.
SHAPE = ModelShape(2880, 201088, 131072, 2, (Layers("full", 12, 8, 128), Layers("window", 12, 8, 128, span=128)))
WEIGHTS = 13_761_306_904
REQUEST = Request(SHAPE, WEIGHTS, {}, H200, 131072)


def test_what_vllm_measured_on_one_h200():
    # The start log of vLLM 0.25.1: at 0.92 of 139.8 GiB it had 111.92 GiB for the cache, with 0.58 GiB for graphs.
    found = replace(REQUEST, args={"gpu-memory-utilization": 0.92}).footprint()
    beside = (139.8 * 0.92 - 111.92) * GIB
    assert found.weights + found.overhead == pytest.approx(beside, rel=0.03)
    assert found.describe() == (
        "12.8 GiB of weights, 3.2 GiB of KV cache for one request of 131072 tokens and 3.8 GiB for activations and "
        "graphs on each chip"
    )


@pytest.mark.parametrize(
    ("args", "chips", "share", "cache"),
    [
        ({"tensor-parallel-size": 2}, 2, 2, 2),
        ({"tensor-parallel-size": "4"}, 4, 4, 4),
        ({"pipeline-parallel-size": 2}, 2, 2, 2),
        # Copies of the weights, and requests of their own.
        ({"data-parallel-size": 2}, 1, 1, 1),
        # The experts are spread over all, the cache is not.
        ({"data-parallel-size": 4, "enable-expert-parallel": True}, 4, 4, 1),
    ],
)
def test_what_is_spread_over_chips(args, chips, share, cache):
    one, found = REQUEST.footprint(), replace(REQUEST, args=args).footprint()
    assert found.chips == chips
    assert found.weights == one.weights / share
    assert found.cache == one.cache / cache


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
    step = {64: 8192}.get(seqs, 0) * 2880 * 20
    assert found.overhead == max(seqs * 201088 * 14, step) + 0.5 * GIB


def test_a_large_batch_counts_where_the_vocabulary_is_small():
    small = replace(REQUEST, shape=replace(SHAPE, vocabulary=1000), args={"max-num-batched-tokens": "64k"})
    assert small.footprint().overhead == 64_000 * 2880 * 20 + 1.1 * GIB


def test_a_cpu_has_no_overhead_here():
    assert replace(REQUEST, accelerator=Accelerator("cpu", "cpu", "cpu", "cpu", 1, 1)).footprint().overhead == 0


def test_the_length_is_what_is_set_else_the_model_s_own():
    assert REQUEST.tokens == 131072
    assert replace(REQUEST, args={"max-model-len": "16k"}).tokens == 16000
    assert replace(REQUEST, args={"max-model-len": "auto"}).tokens == 0


@pytest.mark.parametrize(("gib", "tokens"), [(20, 131072), (17, 28672), (16, 0), (None, 131072)])
def test_the_longest_context_that_fits_and_no_very_short_one(gib, tokens):
    chip = replace(H200, model="l4", memory_mib=gib and gib * 1024)
    request = replace(REQUEST, accelerator=chip, args={"max-num-batched-tokens": "2048"})
    assert request.longest_context() == tokens
    assert request.fits(tokens or 4096) == bool(tokens)
    assert tokens in (0, 131072) or not request.fits(tokens + 1024)


def test_a_number_that_the_parser_will_refuse_is_no_size():
    assert replace(REQUEST, args={"tensor-parallel-size": "two"}).footprint().chips == 1
