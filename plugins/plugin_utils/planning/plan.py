# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan how vLLM is started, from accelerator, recipe, release and requested instances.

Recipes, releases and manifests come from a Library, which the caller provides: on the controller from the catalogue,
in tests from plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from typing import Any, Mapping, Sequence, cast

from ...module_utils.vllm.files import middleware_of
from ...module_utils.vllm.plan_document import (
    DECODE,
    INNER,
    PREFILL,
    Grouped,
    PlanDocument,
    Preloaded,
    Resident,
    Scaled,
)
from ..options.arguments import to_argv, to_config, to_mapping
from ..options.table import Foreign
from .checks import (
    FRONTEND,
    STOP_AT_VARIABLES,
    check_depth,
    check_format,
    check_frontend,
    doubts_of,
    errors_of,
    exclusions,
    flags_as_values,
    judge,
    known_issues,
    option_problems,
    placeholders,
    stopping_variables,
    untried_hardware,
    variant_doubts,
)
from .chips import allot, check_host_memory, check_parts, check_shares, unused_chips
from .choices import Chosen, choose, facts_of
from .compose import Composed, Layer, compose, features_on, layers_of
from .disaggregation import check_requested, router_of
from .disaggregation import layers as disaggregated
from .divisions import check_sizes, size_doubts, size_of
from .engine_memory import Engine
from .environment import base_env, environment_of, has_metadata, mounts_of, needs_vocabulary
from .explanation import explain
from .fit import cache_doubt, length_layer, length_problem, named_models, required_memory
from .groups import check_executor, check_group_ports, check_router_ports, environment
from .hardware import Accelerator
from .inputs import Library, Manifest, PlanError, SiteSettings, how_to_pin
from .instances import check_instances, check_ports, exposure, replica_name
from .kernels import ISSUES, Kernels, compiles, plan_kernels
from .live_adapters import BECAUSE, live_env
from .named_files import WITH_EXAMPLES, file_problems, with_files
from .offload import check_offload, offload_layers, shm_size
from .own_place import check_answers
from .packages import check_packages
from .permission import check_permission, check_remote_code, check_secrets
from .preload import check_preload, preload_layers
from .residents import (
    check_memory,
    check_resident,
    demands_of,
    groups_of,
    resident_warnings,
    residents_layers,
    share_out,
    shares_of,
)
from .runtime import container_of, devices_of, image_of, launch_of, venv_of
from .scale import scale_of
from .side_models import with_paths
from .start_failures import START_FAILURES

__all__ = ["Accelerator", "Library", "PlanError", "ServePlan", "SiteSettings", "plan_instances"]

# Arguments that other keys of the instance set.
PLACE = {"model": "recipe", "served-model-name": "served_model_names", "host": "host", "port": "port"}


# Fields that the plan of an instance has only where it spans hosts, shares its chips, leaves its weights there, or
# follows the load.
_OPTIONAL = tuple(name for kind in (Grouped, Resident, Preloaded, Scaled) for name in kind.__annotations__)


def _fields() -> list[Any]:
    """Return the fields of a plan, which PlanDocument describes, as make_dataclass takes them."""
    kinds = {name: kind.__forward_arg__ for name, kind in PlanDocument.__annotations__.items()}
    whole = [(name, kind) for name, kind in kinds.items() if name not in _OPTIONAL]
    return [*whole, *((name, f"{kinds[name]} | None", None) for name in _OPTIONAL)]


@dataclass(frozen=True)
class ServePlan(make_dataclass("Fields", _fields(), frozen=True)):  # type: ignore[misc]
    """Everything needed to install and start one instance; ``as_dict`` is the document that users see."""

    def as_dict(self) -> PlanDocument:
        """Return the plan as plain data, JSON-serialisable, that shares no mapping or list with another plan.

        The plan of an instance on one host has no key ``group``, that of one with its own chips none ``residents``.
        """
        fields = {name: value for name, value in vars(self).items() if name not in _OPTIONAL or value is not None}
        return cast(PlanDocument, _copied(fields))


def _copied(value: Any) -> Any:
    """Return plain data with every mapping and list of it copied; dataclasses.asdict takes as long as the planning."""
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(entry) for entry in value]
    return value


@dataclass(frozen=True)
class _Shared:
    """The inputs that all instances of a host share."""

    host: str
    accelerator: Accelerator
    site: SiteSettings
    library: Library


def plan_instances(
    host: str, accelerator: Accelerator, instances: Mapping[str, Any], site: SiteSettings, library: Library
) -> list[ServePlan]:
    """Return the plan of every instance of a host, replicas included, in the order of their names.

    ``instances`` is the value of ``vllm_instances``. Raises PlanError for the first instance that cannot be served.
    """
    check_instances(instances)
    chosen = [
        _with_chips(choose(host, name, instances[name], accelerator, site, library), accelerator)
        for name in sorted(instances)
    ]
    for entry in chosen:
        sizes = entry.choice.sizes
        check_parts(entry.where, entry.demand.chips, sizes.tensor, entry.group is not None, entry.runtime, accelerator)
    demands = demands_of(chosen)
    allotted = share_out(chosen, allot(demands, accelerator))
    shared = _Shared(host, accelerator, site, library)
    plans: list[ServePlan] = []
    for entry in chosen:
        composed = _compose(entry, accelerator, site, library, len(allotted[entry.name][0]))
        doubts = _doubts(entry, composed, accelerator, library)
        for number, chips in enumerate(allotted[entry.name], 1):
            plans.append(_plan(shared, entry, composed, doubts, number, chips))
    _check_together(plans, chosen, accelerator)
    check_memory(chosen, {plan.instance: plan.args for plan in plans}, accelerator, library)
    for members in groups_of(chosen).values():
        for entry in members:
            _plan_of(entry.name, plans).warnings.extend(resident_warnings(entry, members, accelerator))
    left = unused_chips(demands, allotted, accelerator)
    if left:
        plans[0].warnings.append(left)
    return plans


def _with_chips(entry: Chosen, accelerator: Accelerator) -> Chosen:
    """Return the entry with the chips that its arguments take: a recipe's may divide otherwise than its strategy."""
    if entry.group is not None or accelerator.stack == "cpu":
        return entry
    own = Layer(entry.where, entry.requested.get("args") or {})
    layers = [*layers_of(entry.recipe, accelerator, entry.choice, facts_of(entry, accelerator)), own]
    args = compose(layers, entry.table, f"recipe {entry.recipe['model']['model_id']}").args
    chips = size_of(args, "data-parallel-size-local", size_of(args, "data-parallel-size"))
    for name in ("tensor-parallel-size", "pipeline-parallel-size", "prefill-context-parallel-size"):
        chips *= size_of(args, name)
    return replace(entry, demand=replace(entry.demand, chips=max(1, chips)))


def _plan_of(name: str, plans: Sequence[ServePlan]) -> ServePlan:
    """Return the plan of an instance with one replica."""
    return next(plan for plan in plans if plan.instance == name)


def _compose(entry: Chosen, accelerator: Accelerator, site: SiteSettings, library: Library, chips: int) -> Composed:
    """Return the checked arguments and environment that all replicas of the instance share; each has so many chips."""
    facts = facts_of(entry, accelerator)
    layers = [
        *layers_of(entry.recipe, accelerator, entry.choice, facts),
        *_chip_layers(accelerator),
        *_release_layers(entry.release, site, library.foreign(accelerator.stack)),
        *_group_layers(entry, accelerator, site),
        Layer(entry.where, entry.requested.get("args") or {}, entry.requested.get("env") or {}, "set by the site"),
        *residents_layers(entry),
        *preload_layers(entry, library),
    ]
    where = f"recipe {entry.recipe['model']['model_id']}"
    kernels = _kernels(entry, accelerator, site)
    first = compose(layers, entry.table, where)
    check_depth(first.args, entry.where)
    because = "offline, quiet, and caches that survive a restart"
    base = Layer("collection", (), base_env(entry, site, needs_vocabulary(entry, first.args)), because)
    compiling = Layer("collection", (), kernels.env, kernels.because)
    adapting = Layer("collection", (), live_env(entry, first), BECAUSE)
    layers = [base, compiling, adapting, *layers, *offload_layers(entry, first, accelerator, chips)]
    layers += _removals(entry, first)
    composed = compose(layers, entry.table, where)
    length = length_layer(entry, composed, accelerator, library)
    if length:
        layers.append(length)
        composed = compose(layers, entry.table, where)
    unchanged = composed
    # The instance itself sets its address and its model; a recipe's value would be the same for all replicas.
    args = {name: value for name, value in composed.args.items() if name not in PLACE}
    manifest = library.manifest(entry.pinned)
    weights = _weights_path(manifest, site) if manifest else None
    args = with_files(args, manifest, weights, _has_examples(entry, accelerator))
    composed = _with_local_paths(replace(composed, args=args), site, library)
    if entry.requested.get("residents"):
        check_resident(entry, composed, accelerator, library.others(entry.table.version))
    check_preload(entry, composed, accelerator)
    _check_options(entry, composed, accelerator, site, library)
    check_sizes(composed.args, _config_of(entry, library), entry.where)
    if entry.group is not None and entry.group.disaggregated:
        check_requested(composed.args, entry.where)
    elif entry.group is not None:
        check_executor(composed.args, entry.where)
    check_frontend(composed.env, entry.where)
    # First: what nobody can allow needs no permission.
    check_answers(entry, unchanged)
    check_permission(entry, unchanged, layers, library.restrictions, (manifest or {}).get("files") or ())
    return composed


def _removals(entry: Chosen, first: Composed) -> list[Layer]:
    """Return the layers that remove variables of a recipe which cannot have their effect here."""
    why = {FRONTEND: "vLLM's frontend in Rust refuses --middleware, by which this collection counts tokens"}
    if entry.runtime == "container" and ".bashrc" in str(entry.stack.get("entrypoint")):
        why["LD_PRELOAD"] = "the .bashrc of the image, which its start reads, sets it to jemalloc"
    names = set(first.env) - set(entry.requested.get("env") or {})
    return [Layer("collection", {}, {name: None}, text) for name, text in why.items() if name in names]


def _chip_layers(accelerator: Accelerator) -> list[Layer]:
    """Return what a chip needs, whatever a recipe says, which was written for others; the site may say otherwise."""
    if accelerator.generation != "ascend_310p":
        return []
    because = "this chip computes in float16 only (vllm-ascend's guides for the Atlas 300I Duo)"
    return [Layer("collection", {"dtype": "float16", "mamba-ssm-cache-dtype": "float16"}, {}, because)]


def _group_layers(entry: Chosen, accelerator: Accelerator, site: SiteSettings) -> list[Layer]:
    """Return the variables of an instance that spans hosts."""
    if entry.group is None:
        return []
    group, sizes = entry.group, entry.choice.sizes
    env = environment(group, accelerator.stack, site.fabric)
    own = [Layer("group", {}, env, "hosts of a group talk in their own network")]
    if group.disaggregated:
        place = {"address": group.address, "interface": group.interface, "port": group.port, "rank": group.rank}
        place |= {"tensor": sizes.tensor, "data": sizes.chips // sizes.tensor}
        own += disaggregated(entry.recipe, group.role, accelerator, place, site.fabric, entry.table.env)
    return own


def _kernels(entry: Chosen, accelerator: Accelerator, site: SiteSettings) -> Kernels:
    """Return the settings for an instance's kernels; a container has its own compilers."""
    if entry.runtime != "venv":
        return Kernels()
    path = venv_of(entry.release, entry.stack, accelerator, site.venv_root)["path"]
    return plan_kernels(entry.stack, accelerator.stack, accelerator.generation, path)


def _with_local_paths(composed: Composed, site: SiteSettings, library: Library) -> Composed:
    """Return the arguments with the paths of other pinned repositories, because hosts have no hub to ask."""

    def path_of(name: str) -> str | None:
        manifest = library.manifest(name)
        return _weights_path(manifest, site) if manifest else None

    return replace(composed, args=with_paths(composed.args, path_of))


def _check_options(
    entry: Chosen, composed: Composed, accelerator: Accelerator, site: SiteSettings, library: Library
) -> None:
    table, foreign = entry.table, library.foreign(accelerator.stack)
    if errors_of(option_problems(composed.args, composed.env, table, foreign), site.strict):
        # Only an error message needs the other releases that have a name.
        others = library.others(table.version)
        problems = option_problems(composed.args, composed.env, table, foreign, others, library.replaced)
        raise PlanError(f"{entry.where}: {'; '.join(errors_of(problems, site.strict))}")
    problems = [*placeholders(composed.args, composed.env), *flags_as_values(composed.args)]
    problems += [*stopping_variables(composed.args, composed.env, table)]
    problems += [*_relations(entry, composed, accelerator, library)]
    for problem in errors_of(problems, True):
        raise PlanError(f"{entry.where}: {problem}")


def _relations(entry: Chosen, composed: Composed, accelerator: Accelerator, library: Library) -> list[str]:
    """Return the problems of settings that do not go together, or not with the model and its files."""
    length = length_problem(entry, composed, _config_of(entry, library))
    pinned = library.manifest(entry.pinned) is not None
    return [
        *exclusions(composed.args, composed.env, library.exclusive, entry.table),
        *file_problems(composed.args, pinned, _has_examples(entry, accelerator)),
        *([length] if length else []),
    ]


def _has_examples(entry: Chosen, accelerator: Accelerator) -> bool:
    """Return whether vLLM starts in a directory that has its examples."""
    return entry.runtime == "container" and accelerator.stack in WITH_EXAMPLES


def _warnings(
    entry: Chosen, composed: Composed, facts: Mapping[str, Any], accelerator: Accelerator, library: Library
) -> list[str]:
    files = {"recipes": entry.requested["recipe"], "releases": entry.release_name, "weights": entry.pinned}
    warnings = [note for kind, name in files.items() for note in library.notes(kind, name)]
    warnings += entry.software.warnings
    warnings += cache_doubt(entry, composed, accelerator, library)
    warnings += size_doubts(composed.args, _config_of(entry, library), entry.where)
    warnings += untried_hardware(entry.recipe, accelerator, entry.where)
    warnings += variant_doubts(entry.recipe, entry.choice.variant, accelerator, entry.where)
    warnings += judge(entry.recipe, facts, entry.where)
    warnings += [
        f"{entry.where}: the recipe's {key.partition('.')[2]} has no effect: {steps[-1].because}"
        for key, steps in composed.history.items()
        if steps and steps[-1].layer == "collection" and steps[-1].value is None
    ]
    warnings += _features_left_out(entry, accelerator)
    warnings += [
        f"{entry.where}: the recipe's --{name} has no effect; the instance's {key} counts"
        for name, key in PLACE.items()
        if name in composed.history
    ]
    return warnings


def _doubts(entry: Chosen, composed: Composed, accelerator: Accelerator, library: Library) -> list[str]:
    """Return what remains after the check: unknown names that a lenient site permits, and unlisted values."""
    table, foreign = entry.table, library.foreign(accelerator.stack)
    problems = option_problems(composed.args, composed.env, table, foreign)
    doubts = doubts_of([*problems, *_relations(entry, composed, accelerator, library)])
    unknown = table.check_env([name for name in composed.env if not name.startswith("VLLM_")], foreign)
    return [*(f"{entry.where}: {each}" for each in doubts), *(f"{entry.where}.env: {each}" for each in unknown)]


def _features_left_out(entry: Chosen, accelerator: Accelerator) -> list[str]:
    """Return a warning where a list of features leaves out what the recipe has on by default; an empty one is meant."""
    choice = entry.choice
    default = features_on(entry.recipe, accelerator, choice.strategy, choice.variant, None, {}, entry.where)
    names = ", ".join(name for name in default if name not in choice.features)
    if not entry.requested.get("features") or not names:
        return []
    return [
        f"{entry.where}.features: leaves out {names}, which the recipe has on by default; add what you want to keep"
    ]


def _plan(
    shared: _Shared, entry: Chosen, composed: Composed, doubts: Sequence[str], number: int, chips: tuple[int, ...]
) -> ServePlan:
    """Return the plan of one replica on its chips."""
    accelerator, site, library = shared.accelerator, shared.site, shared.library
    name = replica_name(entry.name, number)
    model = entry.model
    manifest = library.manifest(entry.pinned)
    check_format(entry.recipe, model, manifest, accelerator, entry.where)
    check_packages(entry, manifest, library.families.get("packages") or ())
    weights = _weights_path(manifest, site) if manifest else None
    served = list(entry.requested.get("served_model_names") or [model])
    group = entry.group.as_dict() if entry.group else None
    role = group["role"] if group else ""
    # A worker accepts no requests, and a prefill host only those of the decode hosts.
    listen = (
        {}
        if role == "worker"
        else {
            "host": group["address"] if group and role == PREFILL else entry.requested.get("host", "127.0.0.1"),
            "port": entry.requested.get("port", 8000) + number - 1,
        }
    )
    middleware = middleware_of(name, group)
    env, overridden = environment_of(name, entry, composed, accelerator, chips, site, middleware)
    memory = required_memory(entry, composed, accelerator, library, manifest, len(chips))
    args = to_mapping(composed.args, entry.table)
    secrets = sorted(site.secrets.get(entry.name) or ())
    check_secrets(entry, secrets, site, library.foreign(accelerator.stack), library.restrictions)
    facts = {**facts_of(entry, accelerator), "args": args, "env": env, "secrets": dict.fromkeys(secrets, True)}
    if group and role == DECODE:
        group["router"] = router_of(group["address"], listen, entry.requested, site.venv_root)
    config = {"model": weights or model, "served-model-name": served, **listen, **composed.args}
    compilers = compiles(_kernels(entry, accelerator, site), env, accelerator.generation)
    mounts = mounts_of(name, weights, composed, accelerator, site)
    start = _start(entry, accelerator, site, chips, mounts, shm_size(composed.args, len(chips)))
    models = list(dict.fromkeys([entry.pinned, *named_models(composed)]))
    check_remote_code(entry, composed, {name: library.manifest(name) for name in models})
    exposed = [] if role in INNER else exposure(entry.where, entry.name, listen["host"], secrets)
    warnings = [
        *exposed,
        *overridden,
        *_warnings(entry, composed, facts, accelerator, library),
        *doubts,
        *_unpinned(entry, models, library),
    ]
    return ServePlan(
        host=shared.host,
        instance=name,
        replica_of=entry.name,
        accelerator=accelerator.model,
        stack=accelerator.stack,
        generation=accelerator.generation,
        runtime=entry.runtime,
        vllm_version=str(entry.release["vllm"]),
        release=entry.release_name,
        recipe=str(entry.requested["recipe"]),
        variant=entry.choice.variant,
        preset=entry.choice.preset,
        strategy=entry.choice.strategy,
        features=dict(entry.choice.features),
        model=model,
        revision=manifest["revision"] if manifest else None,
        weights=weights,
        models=models,
        served_model_names=served,
        listen=listen,
        env=env,
        args=args,
        config=to_config(config, entry.table),
        argv=[*to_argv(config, entry.table), *middleware.words],
        middleware=list(middleware.words),
        chips=list(chips),
        device_groups=list(accelerator.groups),
        secrets=secrets,
        memory_required_gib=memory,
        known_issues=[*known_issues(entry.recipe, facts), *(ISSUES if compilers else ()), *START_FAILURES],
        compilers=compilers,
        explain=explain(composed, args, env),
        warnings=warnings,
        group=group,
        residents=entry.requested.get("residents"),
        preload=entry.requested.get("preload") or None,
        scale=scale_of(entry.requested),
        **start,
    )


def _start(
    entry: Chosen, accelerator: Accelerator, site: SiteSettings, chips: tuple[int, ...], mounts: list[str], shm: str
) -> dict[str, Any]:
    """Return the fields of the plan that depend on the runtime: image and container, or the virtual environment."""
    devices = devices_of(accelerator, chips)
    own = entry.software.image
    image = image_of(entry.stack, accelerator, site.image, site.registry, own) if entry.runtime == "container" else None
    container = container_of(entry.stack, accelerator, image, devices, mounts, shm) if image else None
    venv = venv_of(entry.release, entry.stack, accelerator, site.venv_root) if container is None else None
    stack = entry.stack
    if venv and has_metadata(entry):
        # Only `vllm serve` knows ranks, and it looks for a distribution called vllm, which this build is not called.
        stack = {**stack, "entrypoint": "serve"}
        venv["distribution"] = f"{entry.release['vllm']}+{accelerator.stack}"
    return {
        "image": image,
        "container": container,
        "venv": venv,
        "launch": launch_of(stack, venv, container),
        "libraries": list(entry.stack.get("libraries") or []) if venv else [],
        "devices": devices,
        "mounts": mounts if container else [],
    }


def _unpinned(entry: Chosen, models: Sequence[str], library: Library) -> list[str]:
    """Return a warning for each model whose weights no manifest pins."""
    return [
        f"{entry.where}: no manifest pins the weights of {each}, so no host can fetch them; {how_to_pin(each)}"
        for each in models
        if library.manifest(each) is None
    ]


def _config_of(entry: Chosen, library: Library) -> Mapping[str, Any]:
    """Return the configuration of the model in the manifest of its weights, empty where none has it."""
    return (library.manifest(entry.pinned) or {}).get("config") or {}


def _weights_path(manifest: Manifest, site: SiteSettings) -> str:
    return f"{site.weights_root}/{manifest['repository']}/{manifest['revision']}"


def _release_layers(release: Mapping[str, Any], site: SiteSettings, foreign: Foreign) -> list[Layer]:
    """Return the arguments that every instance gets where the release supports them, each with its reason.

    vLLM's own check of variables knows no plugin, and would stop at each variable of one, and at those that a lenient
    site permits.
    """
    wanted: list[tuple[str, Any, str]] = [
        ("shutdown-timeout", site.drain_timeout, "requests finish before a stop"),
        (STOP_AT_VARIABLES, True, "by default vLLM ignores a VLLM_* variable that it does not know"),
    ]
    unchecked = {STOP_AT_VARIABLES} if foreign.plugin or not site.strict else set()
    options = {*(release.get("supports") or [])} - unchecked
    return [Layer("collection", {name: value}, {}, why) for name, value, why in wanted if name in options]


def _check_together(plans: Sequence[ServePlan], chosen: Sequence[Chosen], accelerator: Accelerator) -> None:
    """Raise PlanError for conflicts between the instances of one host."""
    names = [plan.instance for plan in plans]
    for plan in plans:
        if names.count(plan.instance) > 1:
            raise PlanError(
                f"vllm_instances.{plan.instance}: a replica of another instance has the same name; rename one of them"
            )
    ports = {plan.instance: (plan.replica_of, plan.listen["port"]) for plan in plans if plan.listen}
    check_ports(ports)
    groups = {plan.instance: plan.group for plan in plans if plan.group}
    check_group_ports(groups, {port: name for name, (_origin, port) in ports.items()})
    check_router_ports(groups, {port: f"vllm_instances.{name}" for name, (_origin, port) in ports.items()})
    shares = {plan.instance: (plan.chips, Engine(plan.vllm_version).share(plan.args)) for plan in plans if plan.chips}
    check_shares(shares_of(shares, chosen))
    check_offload(
        {plan.instance: plan.args for plan in plans}, {plan.instance: len(plan.chips) for plan in plans}, accelerator
    )
    check_host_memory({plan.instance: plan.memory_required_gib for plan in plans}, accelerator)
