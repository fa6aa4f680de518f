# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a model of gpt-oss-20b's shape without weights, for `load-format: dummy`:  shape.py WEIGHTS MANIFESTS

Tokenizer and the rest are the smoke model's, which lies below WEIGHTS. The model goes beside it, its manifest below
MANIFESTS.
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


def main(weights: Path, manifests: Path) -> None:
    """Write the model and its manifest."""
    (smoke,) = (weights / "baremetal/gpt-oss-smoke").iterdir()
    files = {path.name: path.read_bytes() for path in sorted(smoke.iterdir()) if path.suffix != ".safetensors"}
    files["config.json"] = json.dumps({**json.loads(files["config.json"]), **SHAPE}, indent=1).encode()
    # No hub has it: a hash of its files stands for the commit.
    revision = sha1(b"".join(files.values()), usedforsecurity=False).hexdigest()
    target = weights / NAME / revision
    target.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (target / name).write_bytes(data)
    listed = {name: {"size": len(data), "sha256": sha256(data).hexdigest()} for name, data in files.items()}
    manifest = manifests / f"{NAME}.yml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    # JSON is YAML.
    manifest.write_text(json.dumps({"repository": NAME, "revision": revision, "files": listed}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
