# SPDX-License-Identifier: GPL-3.0-or-later
"""Presets for models whose recipe has none of the name: by the class of the model, with vLLM's own switch.

They set no limits. vLLM's performance mode chooses batches, graphs and kernels, and nobody has measured it for these
models here: the recipe's own presets of the same name go first.
"""

from typing import Any, Mapping, Sequence

# Models that write text, whatever they read.
GENERATING = ("text", "multimodal", "omni")
# An embedding is one step, so that no graph of small batches makes it faster: these have no latency.
POOLING = ("embedding",)

# The mode is about graphs and kernels of these stacks.
_WHERE = {"stack": ["cuda", "rocm"], "vllm": ">=0.17"}


def _mode(mode: str, because: str) -> dict[str, Any]:
    return {"when": _WHERE, "because": because, "extra_args": ["--performance-mode", mode]}


BY_CLASS: Mapping[str, Mapping[str, Any]] = {
    "throughput": {
        "description": "Most tokens of each chip, by vLLM's own performance mode",
        "rules": [_mode("throughput", "Twice the requests and tokens in a step; not measured with this model")],
    },
    "balanced": {"description": "vLLM's own settings"},
    "latency": {
        "description": "The fastest answer, by vLLM's own performance mode",
        "rules": [
            _mode(
                "interactivity", "A graph for every small batch, so that none is padded; not measured with this model"
            )
        ],
    },
}


def with_class_presets(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a recipe with the presets of its class below its own; unchanged where its class has none."""
    presets = _presets_of((recipe.get("meta") or {}).get("tasks") or [])
    own = recipe.get("presets") or {}
    return recipe if set(presets) <= set(own) else {**recipe, "presets": {**presets, **own}}


def _presets_of(tasks: Sequence[str]) -> Mapping[str, Any]:
    """Return the presets of a class. An embedding of pictures is an embedding."""
    if any(task in POOLING for task in tasks):
        return {name: preset for name, preset in BY_CLASS.items() if name != "latency"}
    return BY_CLASS if any(task in GENERATING for task in tasks) else {}
