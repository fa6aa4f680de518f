# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapters for the tiny llama, with which it gives answers that tell them apart."""

from __future__ import annotations

import json

from tools.smoke_model.weights import filled, safetensors
from tools.tiny_models.families import HEAD, HEADS, HIDDEN

RANK = 8
# Longer than a block of the prefix cache, so that what one adapter has computed would be used for the next one.
PROMPT = "? " * 400
# What an adapter of the dimensions 1 and 2 answers.
FIRST, SECOND = " fleet" * 3, " is" * 3


def adapter(directory, channel, dimension, rank=RANK):
    """Write an adapter that has the tiny llama repeat the token which follows a dimension; return its directory.

    The values of attention go through their own ``channel``: with those of another adapter in the cache, the answer is
    another one.
    """
    directory.mkdir()
    matrices = {
        "v_proj.lora_A": filled((rank, HIDDEN), cells={(0, column): 1.0 for column in range(HIDDEN)}),
        "v_proj.lora_B": filled((HEAD, rank), cells={(channel, 0): 1.0}),
        "o_proj.lora_A": filled((rank, HEADS * HEAD), cells={(0, channel): 1.0}),
        "o_proj.lora_B": filled((HIDDEN, rank), cells={(dimension, 0): 8.0}),
    }
    prefix = "base_model.model.model.layers.0.self_attn."
    named = {f"{prefix}{name}.weight": matrix for name, matrix in matrices.items()}
    (directory / "adapter_model.safetensors").write_bytes(safetensors(named))
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps({**config, "target_modules": ["v_proj", "o_proj"]}))
    return str(directory)
