# SPDX-License-Identifier: GPL-3.0-or-later
"""The choices for an instance before its layers are combined: recipe, release, variant, sizes, features."""

import re
from dataclasses import dataclass, replace
from typing import Any, Callable, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ..options.table import OptionTable
from .chips import Demand, estimated_weights_gib, holds_estimate
from .class_presets import with_class_presets
from .compose import Choice, features_on
from .disaggregation import check_release as check_disaggregation
from .disaggregation import check_software, inner_strategy, side_of, transport_ports
from .disaggregation import port_of as connector_port
from .divisions import Division
from .engine_memory import Engine
from .families import with_family_features, with_family_guards
from .groups import Group, check_spanning, group_of, port_of
from .hardware import Accelerator, exact_blocks
from .inputs import Library, Manifest, PlanError, Serves, SiteSettings, UnknownNameError, always
from .locks import check_lock, choose_lock
from .memory import model_request
from .runtime import choose_release, choose_runtime, choose_stack
from .software import Software, choose_software
from .strategies import MULTI_NODE, Nodes, Sizes, choose_strategy, named_size, parallelism, sizes, tensor_size
from .variants import check_driver, check_release, choose_variant

# Arguments of an instance that set its number of chips.
SIZES = (
    "tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size", "data-parallel-size",
    "data-parallel-size-local",
)  # fmt: skip


@dataclass(frozen=True)
class Chosen:
    """One entry of vllm_instances with all choices that do not depend on which chips it gets.

    ``serves`` tells which advice a refusal may give.
    """

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
    serves: Serves = always

    @property
    def where(self) -> str:
        """The name of the instance in error messages."""
        return f"vllm_instances.{self.name}"

    @property
    def engine(self) -> Engine:
        """What decides about the memory besides model, arguments and chips."""
        return _engine(self.release, self.stack, self.runtime)

    @property
    def model(self) -> str:
        """The repository of the weights, the variant's own where it has one."""
        return repository_of(self.recipe, self.variant)

    @property
    def pinned(self) -> str:
        """The name of the manifest of the weights."""
        return pinned_name(self.recipe, self.variant, self.requested)


def _engine(release: Mapping[str, Any], stack: Mapping[str, Any], runtime: str) -> Engine:
    # Images have FlashInfer; an environment has what its lock names.
    locked = "flashinfer-python" in str(stack.get("requirements_text") or "")
    return Engine(str(release["vllm"]), runtime == "container" or locked)


def repository_of(recipe: Mapping[str, Any], variant: Mapping[str, Any]) -> str:
    """Return the repository of the weights, the variant's own where it has one."""
    return str(variant.get("model_id") or recipe["model"]["model_id"])


def pinned_name(recipe: Mapping[str, Any], variant: Mapping[str, Any], requested: Mapping[str, Any]) -> str:
    """Return the name of a manifest: the repository, with @ and the revision that the instance names."""
    revision, model = requested.get("revision"), repository_of(recipe, variant)
    return f"{model}@{revision}" if revision else model


def choose(
    host: str,
    name: str,
    requested: Mapping[str, Any],
    accelerator: Accelerator,
    site: SiteSettings,
    library: Library,
    serves: Serves = always,
) -> Chosen:
    """Return one entry of vllm_instances with every default resolved. Raises PlanError for an invalid choice."""
    where = f"vllm_instances.{name}"
    recipe = _load(f"{where}.recipe", library.recipe, requested["recipe"])
    recipe = with_family_features(with_class_presets(recipe))
    release_name = choose_release(str(requested.get("release") or site.release), accelerator)
    release_key = f"{where}.release" if requested.get("release") else "vllm_release"
    release = _load(release_key, library.release, release_name)
    stack = choose_stack(release, release_name, accelerator)
    variant = choose_variant(recipe, accelerator, requested.get("variant"), where, site.strict, serves)
    entry = _variant(recipe, variant, accelerator)
    recipe = with_family_guards(recipe, repository_of(recipe, entry), library.families)
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
    if runtime == "container" and (site.image or software.image):
        # Only who has built an image of somebody else knows its CUDA.
        stack = {key: value for key, value in stack.items() if key != "cuda"}
    preset = _preset(recipe, requested.get("preset"), where)
    table = library.table(version, site.strict)
    _check_member(host, requested, where)
    side = side_of(host, requested)
    count = 1 if side else len(requested.get("nodes") or [host])
    wanted = inner_strategy(recipe, side, requested.get("strategy"), where) if side else requested.get("strategy")
    strategy = choose_strategy(recipe, accelerator, wanted, count, where, entry.get("tp"))
    if side:
        check_disaggregation(table, library.others(version), release_name, where)
        check_software(stack, runtime, release_name, where)
    elif count > 1:
        check_spanning(strategy, table, library.others(version), release_name, where)
    group = group_of(host, name, requested, strategy, site.members)
    if group and side:
        group = _with_sides(group, side, requested, accelerator)
    nodes = Nodes() if side else _nodes(requested, strategy, group)
    manifest = library.manifest(pinned_name(recipe, entry, requested))
    engine = _engine(release, stack, runtime)
    found = _sizes(strategy, recipe, entry, preset, accelerator, requested, nodes, manifest, where, engine)
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
            name,
            found.chips,
            1 if group or requested.get("residents") else requested.get("replicas"),
            chips,
            spans=group is not None,
        ),
        software=software,
        group=group,
        serves=serves,
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
    port = connector_port(accelerator, requested)
    # Each data-parallel rank of a host has a port, and there are at most as many as chips.
    return replace(
        group,
        role=side,
        port=port,
        ports=max(1, accelerator.count),
        prefill=tuple(requested["prefill"]),
        serves=int(requested.get("port", 8000)),
        transport=transport_ports(accelerator),
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
    manifest: Manifest | None,
    where: str,
    engine: Engine,
) -> Sizes:
    """Return the parallelism; sizes among the instance's own arguments set its number of chips.

    Raises PlanError where the strategy has no size at which the model can be divided.
    """
    chips = len(requested["chips"]) if requested.get("chips") else accelerator.count
    division = Division((manifest or {}).get("config") or {})
    candidates = [
        size for size in range(1, chips + 1) if division.possible(size, parallelism(strategy, size, nodes.count))
    ]
    own = {} if strategy in MULTI_NODE else _own_sizes(requested, where)
    if not candidates and not own:
        problem = division.problem(parallelism(strategy, chips, nodes.count))
        raise PlanError(f"{where}.strategy: {strategy} is impossible here: {problem}; choose another strategy")
    too_small = _too_small(recipe, variant, accelerator, manifest)
    tensor, because = 1, None
    if strategy == "single_node_tp":
        holds = _holds(recipe, variant, accelerator, manifest, engine)
        # Parts of one chip exchange data, MIG instances do not; between parts of several, whole chips are faster.
        most = min(
            accelerator.most_together, accelerator.devices_per_card if accelerator.divided else accelerator.count
        )
        near = [size for size in candidates if size * _copies(own) <= min(most, chips)] or [1]
        tensor, because = tensor_size(recipe, variant, preset, accelerator, near, holds, too_small)
    elif candidates:
        chips, because = _spread(named_size(recipe, strategy, accelerator, too_small), candidates, chips, division)
    found = sizes(strategy, tensor, chips, nodes, because)
    if not own:
        return found
    tensor = own.get("tensor-parallel-size", found.tensor)
    copies = _copies({"data-parallel-size": found.chips // found.tensor, **own})
    return replace(found, tensor=tensor, chips=tensor * copies, because=None)


def _copies(own: Mapping[str, int]) -> int:
    """Return by how much the chips of an instance are more than its tensor parallel size, by its own arguments."""
    local = own.get("data-parallel-size-local", own.get("data-parallel-size", 1))
    return local * own.get("pipeline-parallel-size", 1) * own.get("prefill-context-parallel-size", 1)


def _spread(named: int | None, candidates: list[int], chips: int, division: Division) -> tuple[int, str | None]:
    """Return the number of chips of a strategy that takes all, and the reason where it takes fewer."""
    size = max(each for each in candidates if each <= (named or chips) or each == candidates[0])
    if size == chips:
        return chips, None
    if size == named:
        return size, "tp of the recipe's strategy_overrides"
    why = "divides the model" if division.known else "is a power of two (no manifest has the model's heads)"
    return size, f"the largest size that {why}"


def _holds(
    recipe: Mapping[str, Any],
    variant: Mapping[str, Any],
    accelerator: Accelerator,
    manifest: Manifest | None,
    engine: Engine,
) -> Callable[[int], bool | None]:
    """Return whether a number of chips holds the model, by its manifest and by the recipe; None where unknown."""
    context = int(recipe["model"].get("context_length") or 0)
    request = model_request(manifest, {}, accelerator, context, engine)
    needs = variant.get("vram_minimum_gb")

    def holds(size: int) -> bool | None:
        if accelerator.memory_mib is None or not (needs or request):
            return None
        enough = holds_estimate(variant, size * accelerator.memory_mib / 1024)
        return enough and (request is None or replace(request, args={"tensor-parallel-size": size}).fits())

    return holds


def _too_small(
    recipe: Mapping[str, Any], variant: Mapping[str, Any], accelerator: Accelerator, manifest: Manifest | None
) -> Callable[[int], bool]:
    """Return whether a number of chips is too small by the recipe, where no manifest says how large the weights are.

    Recipes name sizes for the hardware that they list, where they count unless the weights alone are larger. This host
    may have smaller chips, which have to hold the recipe's whole estimate.
    """
    tried = accelerator.pick((recipe.get("meta") or {}).get("hardware") or {}) is not None
    weights = estimated_weights_gib(recipe, variant)
    each = (accelerator.memory_mib or 0) / 1024

    def too_small(size: int) -> bool:
        if manifest or not each:
            return False
        return (weights or 0) > each * size or not (tried or holds_estimate(variant, each * size))

    return too_small


def _own_sizes(requested: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the sizes among the instance's own arguments; None removes a flag, which means vLLM's default of 1."""
    own = {}
    for key, value in (requested.get("args") or {}).items():
        if key in SIZES:
            number = "1" if value is None else str(value)
            if not re.fullmatch("[0-9]{1,18}", number) or int(number) < 1:
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
        "release_cuda": entry.stack.get("cuda"),
        "mec_firmware": accelerator.mec_firmware,
        "tensor_parallel_size": entry.choice.sizes.tensor,
        "count": accelerator.count,
        "memory_gib": None if memory is None else memory / 1024,
        "accelerator": accelerator.ids,
        "generation": accelerator.generations,
        "stack": accelerator.stack,
        "architecture": entry.recipe["model"].get("architecture"),
        "runtime": entry.runtime,
        "preset": entry.choice.preset,
        "variant": entry.choice.variant,
        "strategy": entry.choice.strategy,
        "features": list(entry.choice.features),
    }
