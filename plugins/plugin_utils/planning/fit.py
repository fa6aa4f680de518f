# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide whether a model fits into its chips, how long its context may be, and what would fit instead.

Where the manifest of the weights has the model's configuration, the memory is computed from it. Else the recipe's own
numbers decide.
"""

import math
from dataclasses import replace
from itertools import islice
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ..options.table import Doubt
from ..options.values import read_number
from .chips import GIB, fit_problem, least_gib, read_tokens, required_gib
from .choices import Chosen
from .compose import Composed, Layer
from .divisions import size_of
from .hardware import Accelerator
from .inputs import Library, Manifest, PlanError, Serves, always, how_to_pin
from .memory import SHORTEST, Request, model_request, weights_size
from .model_shape import shape_problem
from .side_models import paths_in, side_models
from .strategies import MULTI_NODE, compatible
from .variants import PLAIN_FORMATS, other_variants, unsuited

LENGTH = "max-model-len"
LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
TENSOR = "tensor-parallel-size"
CPU_CACHE = "VLLM_CPU_KVCACHE_SPACE"
# So many other chips are named, those with the least memory first.
_NAMED_CHIPS = 4
# Nobody serves one instance on more hosts of too few chips; a recipe may need any memory.
_MOST_HOSTS = 64


def request_of(
    entry: Chosen, args: Mapping[str, Any], accelerator: Accelerator, library: Library, drafts: Sequence[str] = ()
) -> Request | None:
    """Return what is to fit by the model's own configuration, None where no manifest has one that is understood."""
    drafted = sum(weights_size(library.manifest(draft)) or 0 for draft in drafts)
    context = int(entry.recipe["model"].get("context_length") or 0)
    return model_request(library.manifest(entry.pinned), args, accelerator, context, entry.engine, drafted)


def loaded_models(composed: Composed) -> list[str]:
    """Return the repositories besides the model's whose weights the chips hold: a draft model's and adapters'."""
    written = _as_written(composed)
    return side_models(
        {name: value for name, value in written.items() if name in ("speculative-config", "lora-modules")}
    )


def length_layer(entry: Chosen, composed: Composed, accelerator: Accelerator, library: Library) -> Layer | None:
    """Return the layer with the longest context that fits, None where the model's own does or somebody chose one."""
    if LENGTH in composed.history or accelerator.stack == "cpu":
        return None
    request = request_of(entry, composed.args, accelerator, library, loaded_models(composed))
    if request is None or request.context <= SHORTEST or request.fits():
        return None
    tokens = request.longest_context()
    because = f"the longest context that fits; the model's own of {request.context} tokens does not"
    return Layer("collection", {LENGTH: tokens}, {}, because) if tokens else None


def _is_quantized(variant: Mapping[str, Any]) -> bool:
    """Return whether a variant is of quantized weights, or says itself how vLLM quantizes them."""
    own = any(str(word).startswith("--quantization") for word in variant.get("extra_args") or ())
    return own or (variant.get("precision") or "bf16") not in PLAIN_FORMATS


def _is_as_is(entry: Chosen, composed: Composed) -> bool:
    """Return whether the recipe's estimate, which is of the weights of its variant, applies.

    It does not where vLLM quantizes plain ones while it loads them, as for a chip with less memory; ``ascend`` is what
    they have been quantized for.
    """
    return composed.args.get("quantization") in (None, "ascend") or _is_quantized(entry.variant)


def estimate_doubt(
    entry: Chosen, composed: Composed, accelerator: Accelerator, library: Library, needs: float | None, chips: int
) -> list[str]:
    """Return a warning where the recipe itself names fewer chips than hold its estimate of ``needs`` GiB.

    It was tried so on this hardware, perhaps with a shorter context or with a part of the model in the host's memory.
    """
    has = (accelerator.memory_mib or 0) / 1024 * chips * _hosts_of_one_model(entry)
    if not has or not needs or needs <= has or accelerator.stack == "cpu":
        return []
    if library.manifest(entry.pinned) is not None or not _is_as_is(entry, composed):
        return []
    times = 2 ** math.ceil(math.log2(needs / has))
    size = size_of(composed.args, TENSOR) * times
    larger = times * chips <= accelerator.most_together and entry.group is None and entry.serves(args={TENSOR: size})
    more = f", or set args {TENSOR} {size}" if larger else ""
    return [
        f"{entry.where}: needs {needs:g} GiB by vram_minimum_gb of the recipe, and the {chips} x {accelerator.model} "
        f"that it names have {has:.1f} GiB; if vLLM does not start, lower {LENGTH}{more}"
    ]


def length_problem(entry: Chosen, composed: Composed, config: Mapping[str, Any]) -> str | None:
    """Return why vLLM refuses the context that is set: it is longer than the model's own, and nothing permits that.

    Without ``config``, the model's in its manifest, the recipe's length is no more than an estimate: a Doubt.
    """
    own = int(config.get("max_position_embeddings") or 0)
    limit = max(own, int(entry.recipe["model"].get("context_length") or 0))
    tokens = read_tokens(composed.args.get(LENGTH))
    allowed = str(composed.env.get(LONGER, "")).lower() in ("1", "true")
    if not limit or tokens <= limit or allowed or "hf-overrides" in composed.args:
        return None
    text = (
        f'{LENGTH} is {tokens}, expected at most {limit}, the length of the model; set env {LONGER} to "1" where the '
        "model can be trusted beyond it, or extend it with hf-overrides"
    )
    return text if own else Doubt(text)


def named_models(composed: Composed) -> list[str]:
    """Return the repositories besides the model's that the arguments name, as somebody wrote them."""
    return side_models(_as_written(composed))


def named_paths(composed: Composed) -> list[str]:
    """Return the paths that stand where the arguments may name a repository, as somebody wrote them."""
    return paths_in(_as_written(composed))


def _as_written(composed: Composed) -> dict[str, Any]:
    """Return the arguments before paths on the host replaced the names of repositories."""
    written = {name: steps[-1].value for name, steps in composed.history.items() if steps}
    return {name: written.get(name, value) for name, value in composed.args.items()}


def required_memory(
    entry: Chosen, composed: Composed, accelerator: Accelerator, library: Library, manifest: Manifest | None, chips: int
) -> float | None:
    """Return the GiB that a replica needs on ``chips`` chips. Raises PlanError where they do not fit."""
    # vram_minimum_gb is an estimate. Where the recipe names the number of chips itself, the host's count applies, but
    # not where its arguments take fewer.
    named = str(entry.choice.sizes.because or "").startswith("tp ") and entry.demand.chips >= entry.choice.sizes.chips
    estimated = manifest is None and named
    room = (accelerator.count if estimated else max(1, chips)) * _hosts_of_one_model(entry)
    loaded = request_of(entry, composed.args, accelerator, library, loaded_models(composed))
    request = None if accelerator.stack == "cpu" else loaded
    if request is not None:
        footprint = request.footprint()
        needs: float | None = footprint.total * room / GIB
        words = footprint.describe()
    else:
        needs, words = required_gib(
            entry.recipe, entry.variant, weights_size(manifest, str(composed.args.get("load-format"))), composed.args
        )
    if accelerator.stack == "cpu":
        # On a CPU the memory of the processes counts too. The recipe's own figure includes it.
        needs = max(_cpu_gib(needs or 0, loaded, composed), least_gib(entry.variant)) or None
    share = None if manifest is None else entry.engine.share(composed.args)
    if (manifest is not None or _is_as_is(entry, composed)) and (
        problem := fit_problem(needs, words, room, accelerator, share)
    ):
        variants = other_variants(entry.recipe, entry.choice.variant, accelerator, room, entry.serves)
        ways = [f"the variants that fit: {', '.join(variants)}"] if variants else []
        if request is not None and not request.fits():
            ways += ways_out(request, suited_chips(entry, request.precision, library, chips), entry.serves)
        if manifest is None and needs is not None:
            suited = suited_chips(entry, "", library, room)
            ways += estimated_ways(entry.recipe, needs, room, accelerator, suited, entry.serves)
        raise PlanError(f"{entry.where}: {problem}{''.join(f'; {way}' for way in ways)}")
    return None if needs is None else round(needs, 1)


def _cpu_gib(needs: float, request: Request | None, composed: Composed) -> float:
    """Return the GiB of an instance on a CPU: what it needs at least, or its weights and the caches that are set.

    Each process has a cache of that size (vllm/v1/worker/cpu_worker.py).
    """
    sizes = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
    processes = math.prod(size_of(composed.args, name) for name in sizes)
    weights = request.footprint().weights * processes / GIB if request else needs
    return max(needs, weights + processes * (read_number(str(composed.env.get(CPU_CACHE, 0))) or 0))


def cache_doubt(entry: Chosen, composed: Composed, accelerator: Accelerator, library: Library) -> list[str]:
    """Return a warning where the manifest has no config, or only the weights could be held against the memory."""
    manifest = library.manifest(entry.pinned) or {}
    if manifest and not manifest.get("config"):
        way = how_to_pin(entry.pinned) if "config.json" in manifest["files"] else "the weights have no config.json"
        return [
            f"{entry.where}: the manifest of {entry.pinned} has no config, so the model's attention heads, its longest "
            f"context and the size of its KV cache are unknown, and vLLM may refuse to start; {way}"
        ]
    estimated = entry.recipe["model"].get("kv_cache_bytes_per_token") or accelerator.memory_mib is None
    if estimated or accelerator.stack == "cpu" or not manifest.get("config") or weights_size(manifest) is None:
        return []
    if request_of(entry, composed.args, accelerator, library) is not None:
        return []
    reason = shape_problem(manifest["config"]) or f"how {accelerator.model} keeps it is not known here"
    return [
        f"{entry.where}: the size of the KV cache is unknown, and only the weights were held against the memory of the "
        f"chips: {reason}; if vLLM does not start, lower {LENGTH}"
    ]


def ways_out(request: Request, suited: Sequence[Accelerator], serves: Serves = always) -> list[str]:
    """Return what would fit instead, a clause each: more chips, a shorter context, ``suited`` chips."""
    ways = []
    size = next((size for size in _larger_sizes(request) if serves(args={TENSOR: size})), None)
    if size:
        ways.append(f"{TENSOR} {size} would fit")
    tokens = request.longest_context()
    if tokens and tokens < request.tokens and serves(args={LENGTH: tokens}):
        ways.append(f"{LENGTH} {tokens} would fit")
    return ways + _chips_clause(_larger(request, suited), serves)


def _chips_clause(chips: Iterable[Accelerator], serves: Serves) -> list[str]:
    """Return the clause that names the first chips that can be planned with."""
    names = [chip.model for chip in islice((chip for chip in chips if serves(chip=chip)), _NAMED_CHIPS)]
    return [f"as many chips of {', '.join(names)} would do"] if names else []


def estimated_ways(
    recipe: Mapping[str, Any],
    needs: float,
    chips: int,
    accelerator: Accelerator,
    suited: Sequence[Accelerator],
    serves: Serves = always,
) -> list[str]:
    """Return what would hold ``needs`` GiB by the recipe's own estimate instead of ``chips`` chips, a clause each."""
    each = (accelerator.memory_mib or 0) / 1024
    ways = []
    # Tensor parallel sizes are powers of two.
    sizes = [
        2**power for power in range(8) if chips < 2**power <= accelerator.most_together and each * 2**power >= needs
    ]
    size = next((size for size in sizes if serves(args={TENSOR: size})), None)
    if size:
        ways.append(f"{size} chips of this host would do")
    ways += _chips_clause(
        (
            chip
            for chip in sorted(suited, key=lambda chip: chip.memory_mib or 0)
            if chip.stack != "cpu" and (chip.memory_mib or 0) / 1024 > max(each, needs / chips)
        ),
        serves,
    )
    spread = [name for name in compatible(recipe, accelerator) if name in MULTI_NODE and _divides(recipe, name)]
    if spread and chips >= accelerator.count and each:
        least = max(needs / each, _least_chips(recipe, accelerator, spread))
        hosts = -int(-least // accelerator.count)
        # Most models can be divided by powers of two only.
        hosts_of = (hosts, 2 ** math.ceil(math.log2(hosts)))
        hosts = next((number for number in hosts_of if 1 < number <= _MOST_HOSTS and serves(hosts=number)), 0)
        ways += [f"{hosts} such hosts together would do (nodes)"] if hosts else []
    return ways


def _least_chips(recipe: Mapping[str, Any], accelerator: Accelerator, strategies: Sequence[str]) -> int:
    """Return the chips from which on the recipe serves the model on such hosts, 0 where it names no number."""
    floors = recipe.get("strategy_min_gpus") or {}
    own = accelerator.pick(floors) or {}
    if isinstance(own, int):
        return own
    each = {**floors, **own}
    return min((accelerator.pick(each.get(name)) or 0 for name in strategies), default=0)


def suited_chips(entry: Chosen, precision: str, library: Library, count: int = 1) -> list[Accelerator]:
    """Return so many of each chip that recipe and variant list, if they list any, and that has the number format."""
    listed = (entry.recipe.get("meta") or {}).get("hardware") or {}
    return [
        chip
        for chip in library.chips(count)
        if precision not in dict(chip.lacks)
        and not unsuited(entry.recipe, entry.variant, chip)
        and (not listed or chip.pick(listed) not in (None, "unsupported"))
    ]


def _larger_sizes(request: Request) -> Iterator[int]:
    """Yield the tensor parallel sizes above today's, powers of two that the host has, that fit."""
    size = 2
    while size <= request.accelerator.most_together:
        other = replace(request, args={**request.args, TENSOR: size})
        if other.footprint().chips > request.footprint().chips and other.fits():
            yield size
        size *= 2


def _larger(request: Request, chips: Sequence[Accelerator]) -> list[Accelerator]:
    """Return the chips with more memory into which the same number would fit, the smallest first."""
    has = request.accelerator.memory_mib or 0
    larger = sorted((chip for chip in chips if (chip.memory_mib or 0) > has), key=lambda chip: chip.memory_mib or 0)
    return [chip for chip in larger if replace(request, accelerator=chip).fits()]


def _hosts_of_one_model(entry: Chosen) -> int:
    """Return the number of hosts that share the weights."""
    return len(entry.requested.get("nodes") or "1") if _divides(entry.recipe, entry.choice.strategy) else 1


def _divides(recipe: Mapping[str, Any], strategy: str) -> bool:
    """Return whether hosts share the weights: with multi_node_tp_dp only experts are divided among them."""
    return strategy != "multi_node_tp_dp" or recipe["model"].get("architecture") == "moe"
