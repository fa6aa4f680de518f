# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights that a separate program (``vllm preload``) holds on the chips while the engine stops and starts.

vLLM compares only the headers of the files of two checkpoints. So the directory of the sockets is named after the
sha256 of every file of the manifest: an engine finds only a program that holds the very weights of its plan.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Mapping

from ..common.foreign_json import load_json
from .config_file import InstanceError, read_flat_yaml

FORMAT, LOADER = "load-format", "model-loader-extra-config"
IPC_FORMAT = "ipc_cache"
# The path of a socket has at most 107 bytes, and vLLM's names need up to 62 of them.
PARENT = "/run/vllm-preload"
# What decides how weights lie on the chips, as vLLM's WeightCacheKey has it, and what a model needs to be built. The
# rest of an instance's configuration is for its engine.
KEPT = (
    "config-format", "data-parallel-size", "data-parallel-size-local", "dtype", "enable-expert-parallel",
    "expert-placement-strategy", "gpu-memory-utilization", "hf-overrides", "kernel-config", "kv-cache-dtype",
    "kv-cache-dtype-skip-layers", "language-model-only", "limit-mm-per-prompt", "linear-backend", "max-model-len",
    "max-num-batched-tokens", "max-num-seqs", "model", "model-impl", "moe-backend", "pipeline-parallel-size",
    "quantization", "quantization-config", "revision", "speculative-config", "tensor-parallel-size", "tokenizer",
    "tokenizer-mode", "trust-remote-code",
)  # fmt: skip
_KEY = re.compile(r"['\"]?([A-Za-z][\w.-]*)['\"]?:")


def socket_directory(name: str, manifest: Mapping[str, Any]) -> str:
    """Return the directory of the sockets of an instance with the weights of this manifest."""
    files = {path: entry["sha256"] for path, entry in manifest["files"].items()}
    return f"{PARENT}/{hashlib.sha256(json.dumps([name, files], sort_keys=True).encode()).hexdigest()[:24]}"


def directory_in(text: str) -> str:
    """Return the directory of the sockets that a configuration names, empty where the engine reads files."""
    try:
        config = read_flat_yaml(text)
        loader = load_json(str(config.get(LOADER) or "{}"))
        found = str(loader.get("socket_dir") or "")
    except (InstanceError, ValueError, AttributeError):
        return ""
    return found if config.get(FORMAT) == IPC_FORMAT and re.fullmatch(f"{PARENT}/[0-9a-f]{{24}}", found) else ""


def ranks_in(text: str) -> int:
    """Return how many processes hold a part of the weights."""
    config, ranks = read_flat_yaml(text), 1
    for key in ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size"):
        value = str(config.get(key, "1"))
        ranks *= int(value) if value.isascii() and value.isdigit() else 1
    return ranks


def config_of(text: str) -> str:
    """Return the part of an instance's configuration that ``vllm preload`` reads."""
    kept: list[str] = []
    keeps = False
    for line in text.splitlines():
        found = _KEY.match(line)
        if found:
            keeps = found[1].replace("_", "-") in KEPT
        if keeps and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def command_of(config: str, directory: str) -> list[str]:
    """Return the command, whose configuration is at ``config``; the variables of the instance find its vLLM."""
    return ["vllm", "preload", "--config", config, "--weight-cache-socket-dir", directory]
