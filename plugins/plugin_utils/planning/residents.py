# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances that share chips: one of them is awake, the others sleep (vLLM's sleep mode, level 1)."""

from dataclasses import replace
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ..common.versions import sort_key
from ..options.table import OptionTable
from .chips import GIB, Demand
from .choices import Chosen
from .compose import Composed, Layer
from .fit import request_of
from .hardware import Accelerator
from .inputs import Library, PlanError
from .memory import weights_size
from .offload import host_gib

KEY = "residents"
FLAG, DEV_MODE = "enable-sleep-mode", "VLLM_SERVER_DEV_MODE"
# Releases with this variable can sleep on AMD's chips.
ROCM_VARIABLE = "VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE"
# Where vLLM, or vLLM Ascend, has sleep mode at all.
STACKS = ("cuda", "rocm", "cann")
# vLLM says of its check for ROCm that only these chips can sleep, and does not check it.
ROCM_GENERATIONS = ("gfx942", "gfx950")
# What gpt-oss-20b kept of an H200 while it slept (tests/gpu/results, 2026-11-27), for models of unknown shape.
KEPT_GIB = 3.5
# Each process of the API would have its own gate, and each copy of the model its own engine.
SINGLE = ("api-server-count", "data-parallel-size", "data-parallel-size-local")


def residents_layers(entry: Chosen) -> list[Layer]:
    """Return what an instance that shares chips is started with; nothing overrides it."""
    group = entry.requested.get(KEY)
    if not group:
        return []
    env = {DEV_MODE: "1", "OPERATOR_GUARD": "1", "RESIDENTS": str(group)}
    return [Layer(KEY, {FLAG: True}, env, "residents share chips through vLLM's sleep mode")]


def check_resident(entry: Chosen, composed: Composed, accelerator: Accelerator, others: Sequence[OptionTable]) -> None:
    """Raise PlanError for an instance that cannot share its chips; ``others`` are the tables of other releases."""
    if not entry.requested.get(KEY):
        return
    where = f"{entry.where}.{KEY}"
    if accelerator.stack not in STACKS:
        raise PlanError(
            f"{where}: found {show_value(entry.requested[KEY])} on a host with {accelerator.model}, where vLLM has no "
            "sleep mode; expected NVIDIA, AMD or Ascend chips; remove residents"
        )
    if not _can_sleep(entry.table, accelerator.stack):
        able = sorted((each.version for each in others if _can_sleep(each, accelerator.stack)), key=sort_key)
        way_out = f"choose vllm_release {able[0]!r} or newer" if able else "remove residents"
        raise PlanError(
            f"{where}: vLLM {entry.table.version} (release {entry.release_name!r}) has no sleep mode on "
            f"{accelerator.model}; {way_out}"
        )
    for key, found in (("args", FLAG), *(("env", name) for name in (DEV_MODE, "OPERATOR_GUARD", "RESIDENTS"))):
        if found in (entry.requested.get(key) or {}):
            raise PlanError(f"{entry.where}.{key}.{found}: cannot be set here; its value comes from residents")
    for name in SINGLE:
        value = composed.args.get(name)
        if value is not None and str(value) != "1":
            raise PlanError(
                f"{entry.where}.args.{name}: found {show_value(value)} together with residents, expected 1: one "
                "process has to know all requests of an instance that sleeps; remove it or residents"
            )


def _can_sleep(table: OptionTable, stack: str) -> bool:
    if not table.canonical(FLAG) or DEV_MODE not in table.env:
        return False
    return stack != "rocm" or ROCM_VARIABLE in table.env


def groups_of(chosen: Sequence[Chosen]) -> dict[str, list[Chosen]]:
    """Return the instances that share chips, by the name that they have in common."""
    found: dict[str, list[Chosen]] = {}
    for entry in chosen:
        if entry.requested.get(KEY):
            found.setdefault(str(entry.requested[KEY]), []).append(entry)
    return found


def demands_of(chosen: Sequence[Chosen]) -> list[Demand]:
    """Return what is to be allotted: one demand for all instances that share chips. Raises PlanError."""
    groups = groups_of(chosen)
    alone = [entry.demand for entry in chosen if not entry.requested.get(KEY)]
    return [*alone, *(_common_demand(name, group) for name, group in groups.items())]


def _common_demand(name: str, group: Sequence[Chosen]) -> Demand:
    first = group[0]
    pinned = {entry.demand.pinned: entry for entry in group if entry.demand.pinned is not None}
    for entry in group[1:]:
        if entry.demand.chips != first.demand.chips:
            fewer, more = sorted((first, entry), key=lambda each: each.demand.chips)
            raise PlanError(
                f"{entry.where}.{KEY}: {more.name} uses {more.demand.chips} chips and {fewer.name} "
                f"{fewer.demand.chips}; instances that share the chips {name!r} need the same number; set args: "
                f"{{tensor-parallel-size: {more.demand.chips}}} at {fewer.where}, or chips with "
                f"{fewer.demand.chips} of the host's chips at {more.where}"
            )
    if len(pinned) > 1:
        (one, left), (other, right) = list(pinned.items())[:2]
        raise PlanError(
            f"{right.where}.chips: found {list(other)}, and {list(one)} of {left.where}; instances that share the "
            f"chips {name!r} need the same; keep chips at one of the two"
        )
    return replace(first.demand, replicas=1, pinned=next(iter(pinned), None))


def share_out(
    chosen: Sequence[Chosen], allotted: Mapping[str, list[tuple[int, ...]]]
) -> dict[str, list[tuple[int, ...]]]:
    """Return the chips of each instance: those that share chips have what their first one was allotted."""
    same = {entry.name: group[0].name for group in groups_of(chosen).values() for entry in group}
    return {entry.name: list(allotted[same.get(entry.name, entry.name)]) for entry in chosen}


def shares_of(users: Mapping[str, tuple[Sequence[int], float]], chosen: Sequence[Chosen]) -> dict[str, Any]:
    """Return the users of chips for check_shares: of those that share chips only the largest."""
    found = dict(users)
    for group in groups_of(chosen).values():
        largest = max((entry.name for entry in group), key=lambda name: users[name][1] if name in users else 0)
        for entry in group:
            if entry.name != largest:
                found.pop(entry.name, None)
    return found


def check_memory(
    chosen: Sequence[Chosen],
    args: Mapping[str, Mapping[str, Any]],
    loaded: Mapping[str, Sequence[str]],
    allotted: Mapping[str, Sequence[Sequence[int]]],
    accelerator: Accelerator,
    library: Library,
) -> list[str]:
    """Raise PlanError where sleeping instances leave too little memory, of the chips or of the host.

    ``args`` are the arguments of each instance, ``loaded`` the repositories whose weights it has besides the model's,
    ``allotted`` the chips of its replicas. Returns warnings: instances
    with the sleep mode of vLLM alone fill the host only if somebody lets them all sleep on level 1.
    """
    for group in groups_of(chosen).values():
        kept = {entry.name: _kept_gib(entry, args[entry.name], accelerator, library) for entry in group}
        for entry in group:
            others = sum(gib for name, gib in kept.items() if name != entry.name)
            _check_chips(entry, others, args[entry.name], accelerator)
    # A woken instance keeps the memory for its next sleep (a GPU sweep: the first sleep sets it aside, the next do
    # not), so all of them count, and beside them what other engines keep there.
    asleep = {entry.name: entry for entry in chosen if args[entry.name].get(FLAG) is True}
    sizes = {
        name: sum(
            _weights_gib(asleep[name], args[name], loaded[name], len(chips), accelerator, library)
            for chips in allotted[name]
        )
        for name in sorted(asleep)
    }
    cache = sum(host_gib(args[name], len(chips)) for name, replicas in allotted.items() for chips in replicas)
    has, total = (accelerator.host_memory_mib or 0) / 1024, sum(sizes.values())
    if not has or not total or total + cache <= has:
        return []
    parts = ", ".join(f"{name} {gib:.1f} GiB" for name, gib in sizes.items() if gib)
    beside = f", beside {cache:.1f} GiB of KV cache and other data" if cache else ""
    text = (
        f"vllm_instances: sleeping instances keep their weights in the memory of the host: {parts}, together "
        f"{total:.1f} GiB{beside}; the host has {has:.1f} GiB"
    )
    certain = sum(gib for name, gib in sizes.items() if asleep[name].requested.get(KEY))
    if certain and certain + cache > has:
        raise PlanError(f"{text}; let fewer or smaller models share chips")
    return [f"{text}; let them sleep on level 2, which keeps none, or take {FLAG} away"]


def _weights_gib(
    entry: Chosen,
    args: Mapping[str, Any],
    loaded: Sequence[str],
    chips: int,
    accelerator: Accelerator,
    library: Library,
) -> float:
    """Return the GiB of weights that a replica takes with it into the memory of the host; 0 where unknown."""
    request = request_of(entry, args, accelerator, library, loaded)
    if request:
        return request.footprint().weights * chips / GIB
    load_format = str(args.get("load-format"))
    return sum(weights_size(library.manifest(name), load_format) or 0 for name in (entry.pinned, *loaded)) / GIB


def _kept_gib(entry: Chosen, args: Mapping[str, Any], accelerator: Accelerator, library: Library) -> float:
    """Return the GiB of each chip that an instance keeps while it sleeps: all but weights and cache."""
    request = request_of(entry, args, accelerator, library)
    return request.footprint().overhead / GIB if request else KEPT_GIB


def _check_chips(entry: Chosen, kept: float, args: Mapping[str, Any], accelerator: Accelerator) -> None:
    """Raise PlanError where the rest of a chip is too small for what the sleeping instances keep."""
    if accelerator.memory_mib is None:
        return
    share, memory = entry.engine.share(args), accelerator.memory_mib / 1024
    rest = memory * (1 - share)
    if kept > rest:
        lower = int((1 - kept / memory) * 100) / 100
        raise PlanError(
            f"{entry.where}.args.gpu-memory-utilization: {share:g} leaves {rest:.1f} GiB of each {accelerator.model}, "
            f"and the instances that sleep beside it keep about {kept:.1f} GiB; set it to {lower:g}"
        )


def resident_warnings(entry: Chosen, members: Sequence[Chosen], accelerator: Accelerator) -> list[str]:
    """Return warnings for an instance that shares chips with ``members``, itself among them."""
    where, warnings = f"{entry.where}.{KEY}", []
    if len(members) == 1:
        warnings.append(
            f"{where}: no other instance of this host has the name {show_value(entry.requested[KEY])}, so that "
            "this one never sleeps"
        )
    if accelerator.stack == "rocm" and accelerator.generation not in ROCM_GENERATIONS:
        warnings.append(
            f"{where}: vLLM's sleep mode is made for the chips {', '.join(ROCM_GENERATIONS)}, and {accelerator.model} "
            f"is {accelerator.generation}"
        )
    return warnings
