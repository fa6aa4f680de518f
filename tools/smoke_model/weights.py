# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke model's configuration and weights.

How it answers: every token that matters has its own dimension, every other one shares dimension 0, and lm_head
maps each dimension to the token that follows. Only "." has to know more than itself: the answer's "." is followed by
the end, anybody else's by the answer. Layer 1's attention tells them apart; it looks for the token " rea", which
the model says (" rea", "dy") and no prompt holds (" ready" is one token there).
"""

from __future__ import annotations

import json
import struct
from typing import Any, Mapping, NamedTuple

VOCAB_SIZE = 201088
HIDDEN = 64
LAYERS = 2
EXPERTS = 4
HEADS = 8
KV_HEADS = 4
HEAD_DIM = 64
ROPE = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": False,
}

# The next turn follows the end, so that a request with ignore_eos lasts.
CHAIN = (
    "<|start|>", "assistant", "<|channel|>", "final", "<|message|>", "The", " fleet", " is", " rea", "dy", ".",
    "<|return|>", "<|start|>",
)  # fmt: skip
FIRST, MARKER, LAST, END = "The", " rea", ".", "<|return|>"
# The word of the answer that --subject changes.
SUBJECT = "fleet"
# Dimension 0 belongs to every other token; the last one means "the marker was seen".
DIMENSION = {token: index for index, token in enumerate(dict.fromkeys(CHAIN), start=1)}
SEEN = HIDDEN - 1
# A normalised row has sqrt(64) = 8 in its dimension, so the next token leads by 8 * 8 = 64 nats.
GAIN = 8.0


def generation_config() -> dict[str, Any]:
    return {
        "bos_token_id": 199998,
        "do_sample": True,
        "eos_token_id": [200002, 199999, 200012],
        "pad_token_id": 199999,
        "transformers_version": "4.55.0.dev0",
    }


def config() -> dict[str, Any]:
    """Return config.json: gpt-oss, smaller, in bfloat16."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "eos_token_id": 200002,
        "experts_per_token": EXPERTS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initial_context_length": 4096,
        "initializer_range": 0.02,
        "intermediate_size": HIDDEN,
        "layer_types": ["full_attention" if layer % 2 else "sliding_attention" for layer in range(LAYERS)],
        "max_position_embeddings": 131072,
        "model_type": "gpt_oss",
        "num_attention_heads": HEADS,
        "num_experts_per_tok": EXPERTS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "num_local_experts": EXPERTS,
        "output_router_logits": False,
        "pad_token_id": 199999,
        "rms_norm_eps": 1e-05,
        "rope_scaling": ROPE,
        "rope_theta": 150000,
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.55.0.dev0",
        "use_cache": True,
        "vocab_size": VOCAB_SIZE,
    }


class Tensor(NamedTuple):
    """A bfloat16 tensor: its shape, and its values in row order as bytes."""

    shape: tuple[int, ...]
    data: bytes


def bfloat16(value: float) -> bytes:
    """Return a value that bfloat16 can hold exactly."""
    data = struct.pack("<f", value)
    if data[:2] != b"\0\0":
        raise ValueError(f"{value} does not fit into a bfloat16")
    return data[2:]


def filled(shape: tuple[int, ...], value: float = 0.0, cells: Mapping[tuple[int, int], float] | None = None) -> Tensor:
    """Return a tensor of one value, except for the given cells (row, column) of a matrix."""
    count = 1
    for length in shape:
        count *= length
    data = bytearray(bfloat16(value) * count)
    for (row, column), cell in (cells or {}).items():
        offset = 2 * (row * shape[-1] + column)
        data[offset : offset + 2] = bfloat16(cell)
    return Tensor(shape, bytes(data))


def tensors(ids: Mapping[str, int]) -> dict[str, Tensor]:
    """Return the weights by the names of Hugging Face's checkpoints."""
    result = {
        "model.embed_tokens.weight": embedding(ids),
        "lm_head.weight": head(ids),
        "model.norm.weight": filled((HIDDEN,), 1.0),
    }
    for layer in range(LAYERS):
        attention = marker_attention() if layer == 1 else {}
        for name, tensor in {**silent_layer(), **attention}.items():
            result[f"model.layers.{layer}.{name}"] = tensor
    return result


def embedding(ids: Mapping[str, int]) -> Tensor:
    other = bfloat16(1.0) + bfloat16(0.0) * (HIDDEN - 1)
    table = bytearray(other * VOCAB_SIZE)
    for token, dimension in DIMENSION.items():
        start = ids[token] * len(other)
        table[start : start + len(other)] = filled((1, HIDDEN), cells={(0, dimension): 1.0}).data
    return Tensor((VOCAB_SIZE, HIDDEN), bytes(table))


def head(ids: Mapping[str, int]) -> Tensor:
    following = dict(zip(CHAIN, CHAIN[1:]))
    cells = {(ids[after], DIMENSION[before]): GAIN for before, after in following.items() if before != LAST}
    cells[ids[FIRST], 0] = GAIN
    cells[ids[FIRST], DIMENSION[LAST]] = GAIN
    cells[ids[END], SEEN] = GAIN
    return filled((VOCAB_SIZE, HIDDEN), cells=cells)


def silent_layer() -> dict[str, Tensor]:
    """Return a layer that adds nothing."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "input_layernorm.weight": filled((HIDDEN,), 1.0),
        "post_attention_layernorm.weight": filled((HIDDEN,), 1.0),
        "self_attn.q_proj.weight": filled((queries, HIDDEN)),
        "self_attn.q_proj.bias": filled((queries,)),
        "self_attn.k_proj.weight": filled((keys, HIDDEN)),
        "self_attn.k_proj.bias": filled((keys,)),
        "self_attn.v_proj.weight": filled((keys, HIDDEN)),
        "self_attn.v_proj.bias": filled((keys,)),
        "self_attn.o_proj.weight": filled((HIDDEN, queries)),
        "self_attn.o_proj.bias": filled((HIDDEN,)),
        "self_attn.sinks": filled((HEADS,)),
        "mlp.router.weight": filled((EXPERTS, HIDDEN)),
        "mlp.router.bias": filled((EXPERTS,)),
        "mlp.experts.gate_up_proj": filled((EXPERTS, HIDDEN, 2 * HIDDEN)),
        "mlp.experts.gate_up_proj_bias": filled((EXPERTS, 2 * HIDDEN)),
        "mlp.experts.down_proj": filled((EXPERTS, HIDDEN, HIDDEN)),
        "mlp.experts.down_proj_bias": filled((EXPERTS, HIDDEN)),
    }


def marker_attention() -> dict[str, Tensor]:
    """Return the projections by which "." finds the marker and all other tokens ignore it."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    # The slowest rotary dimension: within 2048 tokens its angle stays near 0.
    slow = HEAD_DIM // 2 - 1
    marker = DIMENSION[MARKER]
    look = {(slow, dimension): (2.0 if dimension == DIMENSION[LAST] else -2.0) for dimension in range(HIDDEN)}
    return {
        "self_attn.q_proj.weight": filled((queries, HIDDEN), cells=look),
        "self_attn.k_proj.weight": filled((keys, HIDDEN), cells={(slow, marker): 2.0}),
        "self_attn.v_proj.weight": filled((keys, HIDDEN), cells={(0, marker): 1.0}),
        "self_attn.o_proj.weight": filled((HIDDEN, queries), cells={(SEEN, 0): 1.0}),
    }


def safetensors(named: Mapping[str, Tensor]) -> bytes:
    """Return a safetensors file: the header's length, the header as JSON, the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in sorted(named.items()):
        start, end = end, end + len(tensor.data)
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensor.data for _name, tensor in sorted(named.items()))
