# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights that a separate program (``vllm preload``) holds on the chips while the engine stops and starts.

vLLM compares only the headers of the files of two checkpoints, and not all settings that decide how weights lie on the
chips. Where it finds a difference, the engine reads the weights a second time, beside those that are held. So the
directory of the sockets is named after all that the program has been given: the bytes of every file of the model and of
its draft, the settings, the variables and the environment. An engine finds only a program that holds what its plan
wants, and a program whose directory the configuration no longer names has to end.
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
# rest of an instance's configuration is for its engine. The key lacks all2all-backend, which chooses kernels of
# experts, convert and runner, which change the last layers, and mm-encoder-tp-mode: it divides an encoder.
KEPT = (
    "all2all-backend", "config-format", "convert", "data-parallel-size", "data-parallel-size-local", "dtype",
    "enable-expert-parallel", "expert-placement-strategy", "gpu-memory-utilization", "hf-config-path",
    "hf-overrides", "kernel-config", "kv-cache-dtype", "kv-cache-dtype-skip-layers", "language-model-only",
    "limit-mm-per-prompt", "linear-backend", "max-model-len", "max-num-batched-tokens", "max-num-seqs",
    "mm-encoder-tp-mode", "model", "model-impl", "moe-backend", "pipeline-parallel-size", "quantization",
    "quantization-config", "revision", "runner", "spec-method", "spec-model", "spec-tokens", "speculative-config",
    "tensor-parallel-size", "tokenizer", "tokenizer-mode", "trust-remote-code",
)  # fmt: skip
# Of these, what the program needs to start and its weights do not depend on: a change is for the engine alone.
SIZES = ("gpu-memory-utilization", "max-num-batched-tokens", "max-num-seqs")
# The arguments that name a model whose weights are held beside the main ones.
DRAFTS = ("speculative-config", "spec-model")
# The methods with which vLLM holds the draft too, in sockets of its own (WEIGHT_CACHE_DRAFT_METHODS).
_HELD_DRAFT = re.compile(r"(\w+_)?mtp|eagle3?")
_KEY = re.compile(r"['\"]?([A-Za-z][\w.-]*)['\"]?:")


def socket_directory(name: str, held: Mapping[str, Any]) -> str:
    """Return the directory of the sockets of an instance for ``held``, all that its weights on the chips depend on."""
    text = json.dumps([name, held], sort_keys=True, default=str)
    return f"{PARENT}/{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def weight_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides how weights lie on the chips, of a configuration."""
    return {name: value for name, value in config.items() if _is_kept(name) and name not in SIZES}


def _is_kept(name: str) -> bool:
    return name.partition(".")[0].replace("_", "-") in KEPT


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


def drafts_in(text: str) -> bool:
    """Return whether each of these processes has one beside it that holds its part of a draft."""
    config = read_flat_yaml(text)
    try:
        spec = load_json(str(config.get("speculative-config") or "{}"))
        method = spec.get("method") or config.get("spec-method")
    except (ValueError, AttributeError):
        return False
    return bool(_HELD_DRAFT.fullmatch(str(method)))


def config_of(text: str) -> str:
    """Return the part of an instance's configuration that ``vllm preload`` reads."""
    kept: list[str] = []
    keeps = False
    for line in text.splitlines():
        found = _KEY.match(line)
        if found:
            keeps = _is_kept(found[1])
        if keeps and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def command_of(config: str, directory: str) -> list[str]:
    """Return the command, whose configuration is at ``config``; the variables of the instance find its vLLM."""
    return ["vllm", "preload", "--config", config, "--weight-cache-socket-dir", directory]
