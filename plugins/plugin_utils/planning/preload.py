# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances whose weights stay on the chips while the engine stops and starts (``vllm preload``)."""

from dataclasses import replace
from typing import Any, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.instance.preload import (
    DRAFTS,
    FORMAT,
    IPC_FORMAT,
    KEPT,
    LOADER,
    PARENT,
    socket_directory,
    weight_settings,
)
from ..options.arguments import to_config
from .choices import Chosen
from .compose import Composed, Layer
from .engine_memory import Engine
from .fit import named_models, named_paths
from .hardware import Accelerator
from .inputs import Library, PlanError, how_to_pin
from .memory import CONTEXT_GIB
from .residents import FLAG as SLEEP

KEY = "preload"


def preload_layers(entry: Chosen, library: Library) -> list[Layer]:
    """Return what such an instance is started with; nothing overrides it. Raises PlanError without pinned weights."""
    if not entry.requested.get(KEY):
        return []
    if library.manifest(entry.pinned) is None:
        raise _unpinned(entry, entry.pinned)
    # ``bound`` puts the directory of each replica in the place of their parent.
    args = {FORMAT: IPC_FORMAT, LOADER: {"socket_dir": PARENT}}
    return [Layer(KEY, args, {}, "weights stay on the chips while the instance restarts")]


def _unpinned(entry: Chosen, name: str) -> PlanError:
    return PlanError(
        f"{entry.where}.{KEY}: no manifest pins the weights of {name}, and vLLM itself compares only the "
        f"headers of two checkpoints; {how_to_pin(name)}"
    )


def bound(
    name: str, entry: Chosen, composed: Composed, env: Mapping[str, str], places: Mapping[str, Any], library: Library
) -> Composed:
    """Return the arguments of a replica with the directory of its sockets: a change of what is held changes its name.

    ``places`` are the paths of its model and of its virtual environment. Raises PlanError where no manifest pins a
    draft, which is held too.
    """
    if not entry.requested.get(KEY):
        return composed
    drafts = replace(composed, args={key: value for key, value in composed.args.items() if key in DRAFTS})
    for path in named_paths(drafts):
        raise PlanError(
            f"{entry.where}.{KEY}: no manifest pins a draft at a path ({path}), and vLLM itself compares only "
            "the headers of two drafts; name a repository that has a manifest, or remove preload"
        )
    for draft in named_models(drafts):
        if library.manifest(draft) is None:
            raise _unpinned(entry, draft)
    pinned = {each: library.manifest(each) for each in [entry.pinned, *_named(composed, KEPT)]}
    held = {
        "files": {
            each: {path: file["sha256"] for path, file in manifest["files"].items()}
            for each, manifest in pinned.items()
            if manifest
        },
        "config": weight_settings(to_config(composed.args, entry.table)),
        # They choose kernels too, and the chips.
        "env": env,
        **places,
    }
    return replace(composed, args={**composed.args, LOADER: {"socket_dir": socket_directory(name, held)}})


def _named(composed: Composed, arguments: tuple[str, ...]) -> list[str]:
    """Return the repositories that these arguments name."""
    return named_models(
        replace(composed, args={key: value for key, value in composed.args.items() if key in arguments})
    )


def check_preload(entry: Chosen, composed: Composed, accelerator: Accelerator) -> None:
    """Raise PlanError where the weights cannot stay on the chips, or where nothing would hold them."""
    where = f"{entry.where}.{KEY}"
    if not entry.requested.get(KEY):
        if composed.args.get(FORMAT) == IPC_FORMAT:
            raise PlanError(
                f"{entry.where}: {FORMAT} {IPC_FORMAT} takes the weights from `vllm preload`, which is not started; "
                f"set preload: true in place of {FORMAT}"
            )
        return
    why = _reason_against(entry, composed, accelerator)
    if why:
        raise PlanError(f"{where}: found true, and {why}; remove preload")


def _reason_against(entry: Chosen, composed: Composed, accelerator: Accelerator) -> str:
    known = (entry.table.flags.get(FORMAT) or {}).get("known") or ()
    share = Engine(entry.table.version).share(composed.args)
    left = (1 - share) * (accelerator.memory_mib or 0) / 1024
    set_here = [name for name in (FORMAT, LOADER) if name in (entry.requested.get("args") or {})]
    reasons = {
        f"{accelerator.model} is no chip of NVIDIA": accelerator.stack != "cuda",
        f"the runtime is {show_value(entry.runtime)}, expected 'venv'": entry.runtime != "venv",
        f"vLLM {entry.table.version} has no `vllm preload`": IPC_FORMAT not in known,
        "the instance spans several hosts": entry.group is not None,
        "an instance with residents sleeps, which weights of another process cannot": entry.requested.get("residents"),
        f"{SLEEP} is set: weights of another process cannot sleep": composed.args.get(SLEEP),
        "enable-eplb is set, which moves weights": composed.args.get("enable-eplb"),
        # `vllm preload` warms up with it, and hands over weights by the names of LoRA's layers then.
        "enable-lora is set, with which the engine cannot take the weights over": composed.args.get("enable-lora"),
        # vLLM takes its share of what is free beside the weights, and their holder has a context of CUDA.
        f"gpu-memory-utilization {share:g} leaves {left:.1f} GiB of a chip, of which the process that holds the "
        f"weights takes {CONTEXT_GIB:g}": accelerator.memory_mib and left < CONTEXT_GIB,
        f"args set {' and '.join(set_here)}, which preload sets": set_here,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")
