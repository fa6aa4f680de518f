# SPDX-License-Identifier: GPL-3.0-or-later
"""Assign the chips of a host to its instances, and check that each model fits into its chips."""

import re
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.accelerator.partitions import mig_instances
from ..options.values import read_number
from .hardware import Accelerator
from .inputs import PlanError

GIB, GB = 1024**3, 10**9
_PARAMETERS = re.compile(r"([0-9.]+) ?([MBT])")
# Bytes of a parameter in the formats of recipes; formats of four bits with their scales.
_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "mxfp8": 1, "int4": 0.5, "nvfp4": 0.5, "mxfp4": 0.5, "fp4": 0.5}


@dataclass(frozen=True)
class Demand:
    """What one entry of ``vllm_instances`` requests.

    ``chips`` is the number for one replica; ``replicas`` is None where replicas may fill the host; ``pinned`` are the
    exact chips; ``spans`` says that the instance is on several hosts, so that the planner chose the number of each.
    """

    name: str
    chips: int
    replicas: int | None = None
    pinned: tuple[int, ...] | None = None
    spans: bool = False


def allot(demands: Sequence[Demand], accelerator: Accelerator) -> dict[str, list[tuple[int, ...]]]:
    """Return for each instance the chips of each of its replicas; an empty tuple on a host without chips.

    Pinned instances come first, then one replica (or the requested number) of each, by name. Instances that may fill
    the host then get one more replica each in turn while chips are left. Raises PlanError when there are too few.
    """
    if accelerator.stack == "cpu":
        for demand in demands:
            if demand.pinned is not None:
                raise PlanError(
                    f"vllm_instances.{demand.name}.chips: a CPU has no chips to choose among; "
                    "VLLM_CPU_OMP_THREADS_BIND under env keeps an instance to some cores"
                )
        return {demand.name: [()] * (demand.replicas or 1) for demand in demands}
    _check_pins(demands, accelerator)
    counts = _counts(demands, accelerator)
    taken = {chip for demand in demands for chip in demand.pinned or ()}
    result: dict[str, list[tuple[int, ...]]] = {}
    for demand in sorted(demands, key=lambda demand: demand.name):
        if demand.pinned is not None:
            result[demand.name] = [demand.pinned]
            continue
        result[demand.name] = []
        for _replica in range(counts[demand.name]):
            chips = _next(demand.chips, taken, accelerator)
            taken.update(chips)
            result[demand.name].append(chips)
    return result


def unused_chips(
    demands: Sequence[Demand], allotted: Mapping[str, Sequence[tuple[int, ...]]], accelerator: Accelerator
) -> str:
    """Return a sentence on the chips that remain where instances were to fill the host, "" where none do."""
    filling = [demand for demand in demands if _is_to_fill(demand)]
    used = {chip for each in demands for chips in allotted[each.name] for chip in chips[: each.chips]}
    left = [chip for chip in range(accelerator.count) if chip not in used]
    if accelerator.stack == "cpu" or not filling or not left:
        return ""
    needs = ", ".join(f"{demand.name} {demand.chips}" for demand in filling)
    return (
        f"vllm_instances: {len(left)} of {accelerator.count} x {accelerator.model} remain unused "
        f"(number {', '.join(map(str, left))}), because a replica needs another number ({needs}); change "
        "tensor-parallel-size, or add an instance for them"
    )


def _is_to_fill(demand: Demand) -> bool:
    """Return whether an instance is to use all chips that it can: its own, or those of the host."""
    if demand.pinned is not None:
        return len(demand.pinned) > demand.chips
    return demand.replicas is None or demand.spans


def _check_pins(demands: Sequence[Demand], accelerator: Accelerator) -> None:
    for demand in demands:
        beyond = [chip for chip in demand.pinned or () if chip >= accelerator.count]
        if beyond:
            raise PlanError(
                f"vllm_instances.{demand.name}.chips: found {beyond[0]}, but {accelerator.count} x {accelerator.model} "
                f"are numbered 0 to {accelerator.count - 1}"
            )
        if demand.pinned is not None and demand.chips > len(demand.pinned):
            raise PlanError(
                f"vllm_instances.{demand.name}.chips: found "
                f"{len(demand.pinned)} chips, expected {demand.chips} for its parallelism"
            )


def _counts(demands: Sequence[Demand], accelerator: Accelerator) -> dict[str, int]:
    """Return the number of replicas of each instance that is not pinned."""
    pinned = {chip for demand in demands for chip in demand.pinned or ()}
    free = accelerator.count - len(pinned)
    open_demands = sorted((demand for demand in demands if demand.pinned is None), key=lambda demand: demand.name)
    counts = {demand.name: demand.replicas or 1 for demand in open_demands}
    wanted = sum(demand.chips * counts[demand.name] for demand in open_demands)
    if wanted > free:
        several = len(open_demands) > 1
        parts = ", ".join(_needs(demand, counts[demand.name]) for demand in open_demands)
        total = f", together {wanted}" if several else ""
        kept = f", of which other instances pin {len(pinned)}" if pinned else ""
        key = "vllm_instances" if several else f"vllm_instances.{open_demands[0].name}"
        raise PlanError(
            f"{key}: more chips requested than the host has: {parts}{total}; the host has "
            f"{accelerator.count} x {accelerator.model}{kept}; lower tensor-parallel-size or replicas, or use "
            "another host"
        )
    free -= wanted
    filling = [demand for demand in open_demands if demand.replicas is None]
    while any(demand.chips <= free for demand in filling):
        for demand in filling:
            if demand.chips <= free:
                counts[demand.name] += 1
                free -= demand.chips
    return counts


def _needs(demand: Demand, replicas: int) -> str:
    """Return the chips that an instance needs, in words."""
    return f"{demand.name} needs {demand.chips * replicas} ({replicas} replica{'s' * (replicas > 1)} of {demand.chips})"


def _next(chips: int, taken: set[int], accelerator: Accelerator) -> tuple[int, ...]:
    """Return the next free chips: on one card where possible, because neighbours exchange data faster."""
    free = [chip for chip in range(accelerator.count) if chip not in taken]
    step = -(-chips // accelerator.devices_per_card) * accelerator.devices_per_card
    for start in range(0, accelerator.count - chips + 1, step):
        wanted = range(start, start + chips)
        if all(chip in free for chip in wanted):
            return tuple(wanted)
    for card in range(0, accelerator.count, accelerator.devices_per_card):
        near = [chip for chip in free if card <= chip < card + accelerator.devices_per_card]
        if chips <= len(near):
            return tuple(near[:chips])
    return tuple(free[:chips])


def check_parts(where: str, chips: int, tensor: int, spans: bool, runtime: str, accelerator: Accelerator) -> None:
    """Raise PlanError where an instance would take parts of several chips, or parts that vLLM cannot be given."""
    if not accelerator.divided:
        return
    mig, most = mig_instances(accelerator.partition) > 0, accelerator.devices_per_card
    whole = f"{'switch MIG off' if mig else 'set the chips to SPX/NPS1'} for it (accelerator_partition)"
    if spans:
        raise PlanError(
            f"{where}: an instance over several hosts takes whole chips, and they are divided "
            f"({accelerator.partition}); {whole}"
        )
    if mig and runtime != "container":
        # https://github.com/vllm-project/vllm/issues/41848, and its maintainers in 6551: use docker for MIG.
        raise PlanError(
            f"{where}.runtime: found {runtime}, expected container: vLLM fails with the name of a MIG instance in "
            f"CUDA_VISIBLE_DEVICES, and a container shows it one instance as a chip; or {whole}"
        )
    if mig and chips > 1:
        raise PlanError(
            f"{where}: one replica takes {chips} chips, and a program sees one MIG instance only "
            f"({accelerator.partition}); set tensor-parallel-size and data-parallel-size to 1, or {whole}"
        )
    if tensor > most:
        raise PlanError(
            f"{where}: tensor-parallel-size {tensor} is more than the {most} parts of one {accelerator.model} "
            f"({accelerator.partition}); take at most {most}, or {whole}"
        )


def estimated_weights_gib(recipe: Mapping[str, Any], variant: Mapping[str, Any]) -> float | None:
    """Return the GiB of the weights by the recipe's number of parameters and the variant's format, None where unknown.

    They are at most vram_minimum_gb, because some recipes give a variant another format than its weights have.
    """
    match = _PARAMETERS.fullmatch(str(recipe["model"].get("parameter_count") or "").strip())
    each = _BYTES.get(str(variant.get("precision") or ""))
    needs = variant.get("vram_minimum_gb")
    if match is None or each is None or not needs:
        return None
    parameters = float(match[1]) * {"M": 1e6, "B": 1e9, "T": 1e12}[match[2]]
    return round(float(min(parameters * each, needs * GB)) / GIB, 1)


def least_gib(variant: Mapping[str, Any]) -> float:
    """Return the GiB of a variant's vram_minimum_gb, which recipes give in GB; 0 where it has none."""
    return (variant.get("vram_minimum_gb") or 0) * GB / GIB


def holds_estimate(variant: Mapping[str, Any], gib: float) -> bool:
    """Return whether so many GiB of chips hold a variant by its vram_minimum_gb.

    Recipes mean cards: 80 is one of 80 GB, which has 80 GiB, of which its driver shows up to half a percent less.
    """
    return (variant.get("vram_minimum_gb") or 0) <= gib * 1.01


def required_gib(
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    weights_bytes: int | None,
    args: Mapping[str, Any],
) -> tuple[float | None, str]:
    """Return the GiB that an instance needs in all its chips (None where unknown), and the calculation as text.

    The sum is the weights by their manifest and the KV cache of one request of full length, else the recipe's estimate.
    """
    if weights_bytes is None:
        needs = variant.get("vram_minimum_gb")
        gib = round(least_gib(variant), 1) or None
        return gib, f"{needs:g} GB (vram_minimum_gb of the recipe)" if needs else ""
    weights = weights_bytes / GIB
    model = recipe["model"]
    tokens = read_tokens(args.get("max-model-len", model.get("context_length")))
    each = model.get("kv_cache_bytes_per_token") or 0
    if str(args.get("kv-cache-dtype", "")).startswith("fp8"):
        each = each / 2
    cache = each * tokens / GIB
    words = f"{weights:.1f} GiB of weights"
    if cache:
        words += f" and {cache:.1f} GiB of KV cache for one request of {tokens} tokens"
    return round(weights + cache, 1), words


def read_tokens(length: Any) -> int:
    """Return a length in tokens as vLLM reads it, with 16k and 16K; 0 for auto, where vLLM takes what fits."""
    return max(0, int(read_number(str(length)) or 0))


def fit_problem(needs: float | None, words: str, chips: int, accelerator: Accelerator, share: float | None) -> str:
    """Return the calculation by which an instance does not fit into its chips, "" where it fits.

    ``share`` is its gpu-memory-utilization, None for an estimate, which counts against the whole memory.
    """
    if needs is None or accelerator.memory_mib is None or accelerator.stack == "cpu":
        return ""
    each = accelerator.memory_mib / 1024
    has = each * chips * (1 if share is None else share)
    if round(needs - has, 3) <= 0:  # the longest context that fits leaves nothing over
        return ""
    mig = mig_instances(accelerator.partition) > 0
    more = "larger MIG instances (accelerator_partition)" if mig else "more chips (tensor-parallel-size)"
    of = f", of which gpu-memory-utilization {share:g} allows {has:.1f} GiB" if share is not None else ""
    return (
        f"does not fit: {words} make {round(needs, 1):g} GiB, {chips} x {accelerator.model} have "
        f"{each * chips:.1f} GiB{of}; take {more}, a smaller max-model-len or variant, or another host"
    )


def check_shares(users: Mapping[str, tuple[Sequence[int], float]]) -> None:
    """Raise PlanError when instances that share a chip need more than its memory.

    ``users`` holds the chips and the gpu-memory-utilization of each instance.
    """
    for chip in sorted({chip for chips, _share in users.values() for chip in chips}):
        shares = {name: share for name, (chips, share) in users.items() if chip in chips}
        if len(shares) > 1 and round(sum(shares.values()), 6) > 1:
            parts = ", ".join(f"{name} {share:g}" for name, share in sorted(shares.items()))
            raise PlanError(
                f"vllm_instances: chip {chip} is shared, and the gpu-memory-utilization of its instances is above 1: "
                f"{parts}; lower the shares, or give each instance its own chips"
            )


def check_host_memory(needs: Mapping[str, float | None], accelerator: Accelerator) -> None:
    """Raise PlanError when the instances of a CPU host need more memory than it has."""
    if accelerator.stack != "cpu" or accelerator.memory_mib is None:
        return
    wanted = {name: gib for name, gib in needs.items() if gib}
    has = accelerator.memory_mib / 1024
    if sum(wanted.values()) > has:
        parts = ", ".join(f"{name} {gib:g} GiB" for name, gib in sorted(wanted.items()))
        raise PlanError(
            f"vllm_instances: too little memory: {parts} (weights and KV cache, or vram_minimum_gb of the recipe) need "
            f"{sum(wanted.values()):g} GiB, {accelerator.count} x {accelerator.model} has {has:.1f} GiB; "
            "choose a smaller variant, VLLM_CPU_KVCACHE_SPACE or another host"
        )
