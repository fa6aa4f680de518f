# SPDX-License-Identifier: GPL-3.0-or-later
"""Make models of known shapes without weights, for `load-format: dummy`:  shape.py WEIGHTS MANIFESTS [SHAPE]

Tokenizer and the rest are the smoke model's, which lies below WEIGHTS. The model of gpt-oss-20b's shape goes beside it,
its manifest below MANIFESTS. Other shapes go to WEIGHTS/shapes/NAME, for sweep.py. With SHAPE, a dense one of these
gets random weights in files, as real/SHAPE: dense 17 GB, dense-32b 66 GB.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import sys
import time
from hashlib import file_digest, sha1, sha256
from pathlib import Path
from typing import Any, cast

NAME = "openai/gpt-oss-20b"
# What the smoke model has smaller or not at all.
SHAPE = {
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 24,
    "num_local_experts": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}


# Each as its public configuration has it, but for the vocabulary, which is the smoke model's.
VOCABULARY = 201088
COMMON = {"vocab_size": VOCABULARY, "torch_dtype": "bfloat16", "hidden_act": "silu", "tie_word_embeddings": False,
          "bos_token_id": 199998, "eos_token_id": 200002, "attention_bias": False, "use_cache": True}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "gpt-oss-120b": {**SHAPE, "num_hidden_layers": 36, "num_local_experts": 128,
                     "layer_types": ["sliding_attention", "full_attention"] * 18},
    # Llama-3.1-8B: dense.
    "dense": {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
              "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
              "rope_theta": 500000.0, "mlp_bias": False},
    # Qwen2.5-32B's sizes, without its biases.
    "dense-32b": {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 5120,
                  "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
                  "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                  "rope_theta": 1000000.0, "mlp_bias": False},
    # DeepSeek-V2-Lite: latent attention, experts in bfloat16.
    "latent": {**COMMON, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "hidden_size": 2048,
               "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27,
               "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64, "n_shared_experts": 2,
               "num_experts_per_tok": 6, "moe_layer_freq": 1, "first_k_dense_replace": 1, "n_group": 1,
               "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": False,
               "routed_scaling_factor": 1.0, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
               "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
               "rope_theta": 10000.0},
}  # fmt: skip


def main(weights: Path, manifests: Path) -> None:
    """Write the models, and the manifest of gpt-oss-20b's shape."""
    (smoke,) = (weights / "baremetal/gpt-oss-smoke").iterdir()
    files = {path.name: path.read_bytes() for path in sorted(smoke.iterdir()) if path.suffix != ".safetensors"}
    smoke_config = json.loads(files["config.json"])
    for name, shape in SHAPES.items():
        other = weights / "shapes" / name
        other.mkdir(parents=True, exist_ok=True)
        for file, data in files.items():
            (other / file).write_bytes(data)
        (other / "config.json").write_text(
            json.dumps(shape if "model_type" in shape else {**smoke_config, **shape}, indent=1)
        )
    files["config.json"] = json.dumps({**smoke_config, **SHAPE}, indent=1).encode()
    publish(weights, manifests, NAME, files)


def tensors(shape: dict[str, Any], layer: int | None) -> dict[str, list[int]]:
    """Return name and shape of the weights of a layer of a dense model, or of what belongs to none."""
    hidden = shape["hidden_size"]
    if layer is None:
        table = [VOCABULARY, hidden]
        return {"model.embed_tokens.weight": table, "lm_head.weight": table, "model.norm.weight": [hidden]}
    wide, square = [shape["intermediate_size"], hidden], [hidden, hidden]
    narrow = [hidden // shape["num_attention_heads"] * shape["num_key_value_heads"], hidden]
    shapes = {
        "input_layernorm": [hidden], "post_attention_layernorm": [hidden], "mlp.gate_proj": wide, "mlp.up_proj": wide,
        "mlp.down_proj": wide[::-1], "self_attn.q_proj": square, "self_attn.k_proj": narrow,
        "self_attn.v_proj": narrow, "self_attn.o_proj": square,
    }  # fmt: skip
    return {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def write_tensors(target: Path, listed: dict[str, list[int]]) -> None:
    """Write a file of safetensors in bfloat16: norms are 1, other values random of 0.008 to 0.03, with both signs."""
    header: dict[str, object] = {}
    at = 0
    for name, shape in listed.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Repeated: what is measured does not depend on the values.
    values = bytearray(os.urandom(1 << 26))
    values[1::2] = values[1::2].translate(bytes([0x3C] * 128 + [0xBC] * 128))
    with target.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in listed.items():
            source = b"\x80\x3f" * shape[0] if name.endswith("norm.weight") else values
            left = 2 * math.prod(shape)
            while left:
                left -= file.write(memoryview(source)[:left])


def heavy_file(arguments: tuple[Path, str, int]) -> tuple[str, dict[str, object]]:
    """Write a file with four layers, or the last one with the rest; return its name and its entry of the manifest."""
    directory, name, number = arguments
    shape = SHAPES[name]
    files = shape["num_hidden_layers"] // 4
    listed = tensors(shape, None) if number == files else {}
    for layer in range(number * 4, number * 4 + 4) if number < files else ():
        listed |= tensors(shape, layer)
    target = directory / f"model-{number:05d}-of-{files:05d}.safetensors"
    write_tensors(target, listed)
    with target.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    return target.name, {"size": target.stat().st_size, "sha256": digest, "names": list(listed)}


def heavy(weights: Path, manifests: Path, shape: str, small: Path) -> None:
    """Write a dense model with its weights, and its manifest; ``small`` has the other files."""
    began = time.monotonic()
    name = f"real/{shape}"
    target = weights / name / "being-made"
    target.mkdir(parents=True, exist_ok=True)
    numbers = range(SHAPES[shape]["num_hidden_layers"] // 4 + 1)
    with multiprocessing.Pool(len(numbers)) as pool:
        entries = dict(pool.map(heavy_file, [(target, shape, number) for number in numbers], chunksize=1))
    places = {one: file for file, each in entries.items() for one in cast("list[str]", each.pop("names"))}
    files = {path.name: path.read_bytes() for path in small.iterdir()}
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": places}).encode()
    revision = publish(weights, manifests, name, files, entries)
    for path in target.iterdir():
        path.rename(weights / name / revision / path.name)
    target.rmdir()
    print(
        f"{sum(int(str(each['size'])) for each in entries.values()) / 1e9:.1f} GB in {time.monotonic() - began:.0f} s"
    )


def publish(
    weights: Path, manifests: Path, name: str, files: dict[str, bytes], more: dict[str, dict[str, object]] | None = None
) -> str:
    """Write the files of a model and its manifest, with ``more`` entries of large files; return the revision."""
    # No hub has it: a hash of its files stands for the commit.
    revision = sha1(b"".join(files.values()), usedforsecurity=False).hexdigest()
    target = weights / name / revision
    target.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (target / file).write_bytes(data)
    listed = {file: {"size": len(data), "sha256": sha256(data).hexdigest()} for file, data in files.items()}
    listed |= more or {}
    manifest = manifests / f"{name}.yml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    manifest.write_text(json.dumps({"repository": name, "revision": revision, "files": listed}, indent=1) + "\n")
    return revision


if __name__ == "__main__":
    if sys.argv[3:]:
        # Beside the shape that was made before.
        heavy(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path("/carried/weights/shapes", sys.argv[3]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
