#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build tiny models of five architectures, which a real vLLM serves on a CPU within a minute.

    tools/tiny_models/build.py OUT [NAME ...]

OUT/NAME/ gets the files of a model: llama, qwen3-moe, deepseek-v2 (latent attention), idefics3 (pictures), bert
(embeddings). The bytes are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / ".collections")]

from tools.smoke_model.weights import safetensors  # noqa: E402
from tools.tiny_models.families import FAMILIES, TinyModel  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the directory for the models")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(FAMILIES)} (default: all)")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in FAMILIES]
    if unknown:
        parser.error(f"NAME: found {unknown[0]!r}, expected some of {', '.join(FAMILIES)}")
    for name in arguments.names or FAMILIES:
        model = FAMILIES[name]()
        write(model, arguments.out / name)
        print(" ".join((str(arguments.out / name), *model.arguments)))
    return 0


def write(model: TinyModel, directory: Path) -> None:
    """Write the files of a model."""
    for name, document in model.documents.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (directory / "model.safetensors").write_bytes(safetensors(model.tensors))


if __name__ == "__main__":
    sys.exit(main())
