# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The choices for an instance before its layers are combined: recipe, release, variant, sizes, features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ..options.table import OptionTable
from .checks import check_driver, check_release, choose_variant
from .chips import Demand
from .class_presets import with_class_presets
from .compose import Choice, features_on
from .disaggregation import check_release as check_disaggregation
from .disaggregation import check_software, inner_strategy, side_of
from .disaggregation import port_of as connector_port
from .families import with_family_features, with_family_guards
from .groups import Group, check_spanning, group_of, port_of
from .hardware import Accelerator, exact_blocks
from .inputs import Library, PlanError, SiteSettings, UnknownNameError
from .locks import check_lock, choose_lock
from .runtime import choose_release, choose_runtime, choose_stack
from .software import Software, choose_software
from .strategies import MULTI_NODE, SINGLE_NODE, Nodes, Sizes, choose_strategy, sizes, spread_size, tensor_size

# Arguments of an instance that set its number of chips.
SIZES = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "data-parallel-size-local")


@dataclass(frozen=True)
class Chosen:
    """One entry of vllm_instances with all choices that do not depend on which chips it gets."""

    name: str
    requested: Mapping[str, Any]
    recipe: Mapping[str, Any]
    release_name: str
    release: Mapping[str, Any]
    stack: Mapping[str, Any]
    runtime: str
    variant: Mapping[str, Any]
    table: OptionTable
    choice: Choice
    demand: Demand
    software: Software
    group: Group | None = None

    @property
    def where(self) -> str:
        """The name of the instance in error messages."""
        return f"vllm_instances.{self.name}"

    @property
    def model(self) -> str:
        """The repository of the weights, the variant's own where it has one."""
        return str(self.variant.get("model_id") or self.recipe["model"]["model_id"])

    @property
    def pinned(self) -> str:
        """The name of the manifest of the weights: the repository, with @ and the revision that the instance names."""
        revision = self.requested.get("revision")
        return f"{self.model}@{revision}" if revision else self.model


def choose(
    host: str, name: str, requested: Mapping[str, Any], accelerator: Accelerator, site: SiteSettings, library: Library
) -> Chosen:
    """Return one entry of vllm_instances with every default resolved. Raises PlanError for an invalid choice."""
    where = f"vllm_instances.{name}"
    recipe = _load(f"{where}.recipe", library.recipe, requested["recipe"])
    recipe = with_family_features(with_class_presets(recipe))
    release_name = choose_release(str(requested.get("release") or site.release), accelerator)
    release_key = f"{where}.release" if requested.get("release") else "vllm_release"
    release = _load(release_key, library.release, release_name)
    stack = choose_stack(release, release_name, accelerator)
    variant = choose_variant(recipe, accelerator, requested.get("variant"), where, site.strict)
    entry = _variant(recipe, variant, accelerator)
    recipe = with_family_guards(recipe, str(entry.get("model_id") or recipe["model"]["model_id"]), library.families)
    version = str(release["vllm"])
    check_release(recipe, entry, version, release_name, where)
    check_driver(stack, accelerator, release_name)
    runtime = choose_runtime(stack, requested.get("runtime") or site.runtime, site.image, release_name, where)
    if runtime == "venv":
        stack = choose_lock(stack, site.python, accelerator.pythons, release_name)
        check_lock(stack, release_name)
    software = choose_software(recipe, entry, accelerator, stack, runtime, version, release_name, site, where)
    if software.command:
        stack = {**stack, "entrypoint": list(software.command)}
    preset = _preset(recipe, requested.get("preset"), where)
    table = library.table(version, site.strict)
    _check_member(host, requested, where)
    side = side_of(host, requested)
    count = 1 if side else len(requested.get("nodes") or [host])
    wanted = inner_strategy(recipe, side, requested.get("strategy"), where) if side else requested.get("strategy")
    strategy = choose_strategy(recipe, accelerator, wanted, count, where)
    if side:
        check_disaggregation(table, library.others(version), release_name, where)
        check_software(stack, runtime, release_name, where)
    elif count > 1:
        check_spanning(strategy, table, library.others(version), release_name, where)
    group = group_of(host, name, requested, strategy, site.members)
    if group and side:
        group = _with_sides(group, side, requested, accelerator)
    nodes = Nodes() if side else _nodes(requested, strategy, group)
    found = _sizes(strategy, recipe, entry, preset, accelerator, requested, nodes, where)
    features = features_on(
        recipe,
        accelerator,
        strategy,
        variant,
        requested.get("features"),
        requested.get("feature_modes") or {},
        where,
    )
    chips = tuple(requested["chips"]) if requested.get("chips") else None
    return Chosen(
        name=name,
        requested=requested,
        recipe=recipe,
        release_name=release_name,
        release=release,
        stack=stack,
        runtime=runtime,
        variant=entry,
        table=table,
        choice=Choice(variant, strategy, requested.get("preset"), features, found),
        demand=Demand(
            name, found.chips, 1 if group or requested.get("residents") else requested.get("replicas"), chips
        ),
        software=software,
        group=group,
    )


def _load(key: str, load: Callable[[str], Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    """Return the file ``name``. Raises PlanError that begins with ``key``, which holds the name, where none has it."""
    try:
        return load(name)
    except UnknownNameError as exc:
        raise PlanError(f"{key}: {exc}") from exc


def _variant(recipe: Mapping[str, Any], name: str, accelerator: Accelerator) -> Mapping[str, Any]:
    """Return the variant's block, with the sizes that it states for this exact hardware."""
    block: Mapping[str, Any] = (recipe.get("variants") or {}).get(name) or {}
    for _id, exact in exact_blocks(accelerator, block.get("hardware_overrides"), accelerator.count):
        own = {key: exact[key] for key in ("tp", "vram_minimum_gb") if exact.get(key)}
        block = {**block, **own}
    return block


def _preset(recipe: Mapping[str, Any], name: str | None, where: str) -> Mapping[str, Any]:
    if not name:
        return {}
    presets = recipe.get("presets") or {}
    model = recipe["model"]["model_id"]
    if not presets:
        raise PlanError(
            f"{where}.preset: found {show_value(name)}, but recipe {model} has no presets; remove preset and set args "
            "of the instance, or add presets to a recipe file of your own (vllm_recipe_path)"
        )
    if name not in presets:
        raise PlanError(f"{where}.preset: recipe {model} has no preset {name!r}; {nearest(name, presets)}")
    preset: Mapping[str, Any] = presets[name] or {}
    if preset.get("points") or preset.get("workload"):
        raise PlanError(
            f"{where}.preset: {name!r} of recipe {model} holds measured points for one system, so it is not "
            "a preset of "
            "this collection; copy the settings that you want to args and env"
        )
    return preset


def _check_member(host: str, requested: Mapping[str, Any], where: str) -> None:
    names = list(requested.get("nodes") or [host])
    if host not in names:
        raise PlanError(f"{where}.nodes: {host} is not among the nodes {', '.join(names)}")


def _with_sides(group: Group, side: str, requested: Mapping[str, Any], accelerator: Accelerator) -> Group:
    """Return the group of an instance some of whose hosts compute prompts for the others."""
    port = connector_port(accelerator.stack, requested)
    # Each data-parallel rank of a host has a port, and there are at most as many as chips.
    return replace(
        group,
        role=side,
        port=port,
        ports=max(1, accelerator.count),
        prefill=tuple(requested["prefill"]),
        serves=int(requested.get("port", 8000)),
    )


def _nodes(requested: Mapping[str, Any], strategy: str, group: Group | None) -> Nodes:
    if group is None:
        return Nodes()
    head = str(requested.get("node_address") or next(iter(group.members.values())))
    return Nodes(len(group.members), group.rank, head, port_of(strategy, requested))


def _sizes(
    strategy: str,
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    preset: Mapping[str, Any],
    accelerator: Accelerator,
    requested: Mapping[str, Any],
    nodes: Nodes,
    where: str,
) -> Sizes:
    """Return the parallelism; sizes among the instance's own arguments set its number of chips."""
    chips = len(requested["chips"]) if requested.get("chips") else accelerator.count
    tensor, because = 1, None
    if strategy == "single_node_tp":
        tensor, because = tensor_size(recipe, variant, preset, accelerator, chips)
    elif strategy in SINGLE_NODE:
        chips, because = spread_size(recipe, strategy, accelerator, chips)
    found = sizes(strategy, tensor, chips, nodes, because)
    own = _own_sizes(requested, where)
    if not own or strategy in MULTI_NODE:
        return found
    tensor = own.get("tensor-parallel-size", found.tensor)
    local = own.get("data-parallel-size-local", own.get("data-parallel-size", found.chips // found.tensor))
    return replace(found, tensor=tensor, chips=tensor * own.get("pipeline-parallel-size", 1) * local, because=None)


def _own_sizes(requested: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the sizes among the instance's own arguments; None removes a flag, which means vLLM's default of 1."""
    own = {}
    for key, value in (requested.get("args") or {}).items():
        if key in SIZES:
            number = "1" if value is None else str(value)
            if not (number.isascii() and number.isdigit()) or int(number) < 1:
                raise PlanError(f"{where}.args.{key}: {not_a_number(value, 'a whole number from 1')}")
            own[key] = int(number)
    return own


def facts_of(entry: Chosen, accelerator: Accelerator) -> dict[str, Any]:
    """Return the facts that conditions of a recipe are evaluated with."""
    memory = accelerator.memory_mib
    return {
        "vllm": str(entry.release["vllm"]),
        "driver": accelerator.driver_version,
        "cuda": accelerator.cuda_version,
        "mec_firmware": accelerator.mec_firmware,
        "tensor_parallel_size": entry.choice.sizes.tensor,
        "count": accelerator.count,
        "memory_gib": None if memory is None else memory / 1024,
        "accelerator": accelerator.ids,
        "generation": accelerator.generations,
        "stack": accelerator.stack,
        "runtime": entry.runtime,
        "preset": entry.choice.preset,
        "variant": entry.choice.variant,
        "strategy": entry.choice.strategy,
        "features": list(entry.choice.features),
    }
