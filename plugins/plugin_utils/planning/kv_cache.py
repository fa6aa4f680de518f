# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of KV cache for one request, as vLLM sizes it at its start, and the longest request that fits."""

from dataclasses import dataclass
from typing import Any, Callable, Mapping

from .model_shape import Layers, ModelShape

# A context is chosen in steps of so many tokens.
STEP = 1024


@dataclass(frozen=True)
class Cache:
    """How an engine keeps requests: bytes of a number, tokens of the running steps, ways of decode context parallelism.

    ``packed`` says whether DeepSeek's sparse attention has its own FP8 format.
    """

    element: float
    running: int
    contexts: int = 1
    packed: bool = False


def cache_element(args: Mapping[str, Any], shape: ModelShape, lacks_fp8: bool = False) -> float:
    """Return the bytes of one number in the cache; a chip that lacks FP8 has the model's own there."""
    name = str(args.get("kv-cache-dtype", "auto"))
    if name.startswith("int8") or (name.startswith("fp8") and not lacks_fp8):
        return 1
    if name.startswith("nvfp4"):
        # Half a byte, and a scale of one byte for 16 numbers.
        return 0.5625
    return {"float32": 4, "float16": 2, "bfloat16": 2}.get(name, shape.element_bytes)


def request_bytes(shape: ModelShape, tokens: int, tensor: int, cache: Cache) -> float:
    """Return the bytes that a request of ``tokens`` takes on each chip of a tensor parallel group."""
    return sum(_layer_bytes(layers, tokens, tensor, cache) * layers.count for layers in shape.layers)


def _layer_bytes(layers: Layers, tokens: int, tensor: int, cache: Cache) -> float:
    if layers.kind == "state":
        # Prefix caching keeps a second state.
        return 2 * layers.state_bytes / tensor
    blocks = _blocks(layers, tokens, cache)
    if layers.page:
        return blocks * layers.page
    # A head is on one chip at least; one latent vector is on all.
    heads = -(-layers.heads // tensor)
    numbers = layers.packed if cache.packed and layers.packed else heads * layers.values * cache.element
    return blocks * layers.block * (numbers + layers.extra_bytes)


def _blocks(layers: Layers, tokens: int, cache: Cache) -> int:
    """Return the blocks of a layer; vLLM takes larger ones where a kernel or a state needs it, at most one more."""
    if layers.kind == "window":
        # One more, because a window may begin within a block.
        return -(-min(layers.span - 1 + cache.running, tokens) // layers.block) + 1
    if layers.kind == "chunk":
        return -(-min(layers.span + cache.running, tokens) // layers.block)
    return -(-tokens // (layers.block * cache.contexts))


def longest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number of tokens up to ``most``, in steps of 1024, that fits; 0 where none does."""
    low, high = 0, most // STEP
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle * STEP):
            low = middle
        else:
            high = middle - 1
    return low * STEP
