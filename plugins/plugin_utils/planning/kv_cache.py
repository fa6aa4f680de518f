# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of KV cache for one request, as vLLM sizes it at its start, and the longest request that fits."""

from __future__ import annotations

from typing import Any, Callable, Mapping

from .model_shape import Layers, ModelShape

# Tokens of a block; vLLM takes more where a kernel or a state needs it, at most one block of each layer in addition.
BLOCK = 16
# A context is chosen in steps of so many tokens.
STEP = 1024


def cache_element(args: Mapping[str, Any], shape: ModelShape) -> float:
    """Return the bytes of one number in the cache."""
    name = str(args.get("kv-cache-dtype", "auto"))
    if name.startswith(("fp8", "int8")):
        return 1
    if name.startswith("nvfp4"):
        # Half a byte, and a scale of one byte for 16 numbers.
        return 0.5625
    return {"float32": 4, "float16": 2, "bfloat16": 2}.get(name, shape.element_bytes)


def request_bytes(shape: ModelShape, tokens: int, tensor: int, element: float, batched: int) -> float:
    """Return the bytes that a request of ``tokens`` takes on each chip of a tensor parallel group.

    ``batched`` is max-num-batched-tokens: a window holds the tokens of the running step as well.
    """
    return sum(_layer_bytes(layers, tokens, tensor, element, batched) * layers.count for layers in shape.layers)


def _layer_bytes(layers: Layers, tokens: int, tensor: int, element: float, batched: int) -> float:
    if layers.kind == "state":
        # Prefix caching keeps a second state.
        return 2 * layers.state_bytes / tensor
    # A head is on one chip at least; one latent vector is on all.
    heads = -(-layers.heads // tensor)
    each = heads * layers.values * element + layers.extra_bytes
    return _blocks(layers, tokens, batched) * BLOCK * each


def _blocks(layers: Layers, tokens: int, batched: int) -> int:
    if layers.kind == "window":
        # One more, because a window may begin within a block.
        return -(-min(layers.span - 1 + batched, tokens) // BLOCK) + 1
    if layers.kind == "chunk":
        tokens = min(layers.span + batched, tokens)
    return -(-tokens // BLOCK)


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
