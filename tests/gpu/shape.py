# SPDX-License-Identifier: GPL-3.0-or-later
"""Make models of known shapes without weights, for `load-format: dummy`:  shape.py WEIGHTS MANIFESTS

Tokenizer and the rest are the smoke model's, which lies below WEIGHTS. The model of gpt-oss-20b's shape goes beside it,
its manifest below MANIFESTS. Other shapes go to WEIGHTS/shapes/NAME, for sweep.py.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha1, sha256
from pathlib import Path

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
COMMON = {"vocab_size": 201088, "torch_dtype": "bfloat16", "hidden_act": "silu", "tie_word_embeddings": False,
          "bos_token_id": 199998, "eos_token_id": 200002, "attention_bias": False, "use_cache": True}  # fmt: skip
SHAPES = {
    "gpt-oss-120b": {**SHAPE, "num_hidden_layers": 36, "num_local_experts": 128,
                     "layer_types": ["sliding_attention", "full_attention"] * 18},
    # Llama-3.1-8B: dense.
    "dense": {**COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
              "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
              "rope_theta": 500000.0, "mlp_bias": False},
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


def publish(weights: Path, manifests: Path, name: str, files: dict[str, bytes]) -> None:
    """Write the files of a model and its manifest."""
    # No hub has it: a hash of its files stands for the commit.
    revision = sha1(b"".join(files.values()), usedforsecurity=False).hexdigest()
    target = weights / name / revision
    target.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (target / file).write_bytes(data)
    listed = {file: {"size": len(data), "sha256": sha256(data).hexdigest()} for file, data in files.items()}
    manifest = manifests / f"{name}.yml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    manifest.write_text(json.dumps({"repository": name, "revision": revision, "files": listed}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
