# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan how vLLM is started, from accelerator, recipe, release and requested instances.

Recipes, releases and manifests come from a Library, which the caller provides: on the controller from the catalogue,
in tests from plain data.
"""

from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence, cast

from ...module_utils.instance.scale_door import PORT as DOOR_PORT
from ...module_utils.vllm.files import middleware_of
from ...module_utils.vllm.plan_document import DECODE, INNER, PREFILL, PlanDocument, StartDocument
from ..options.arguments import to_argv, to_config, to_mapping
from .checks import judge, known_issues
from .chips import allot, check_host_memory, check_parts, check_shares, unused_chips
from .choices import Chosen, choose, facts_of
from .compose import Composed, features_on
from .conditions import quantizations
from .disaggregation import mounted_for, router_of
from .divisions import size_doubts
from .engine_memory import Engine
from .engine_settings import PLACE, compose_settings, config_of, doubts_about, kernels_of, weights_path, with_chips
from .environment import environment_of, has_metadata, mounts_of
from .explanation import explain
from .fit import cache_doubt, estimate_doubt, loaded_models, named_models, required_memory
from .groups import check_group_ports, check_router_ports, note_other_groups
from .hardware import Accelerator
from .inputs import Library, PermissionNeededError, PlanError, Serves, SiteSettings, always, how_to_pin
from .instances import check_instances, check_ports, exposure, replica_name, with_dashes, without_effect
from .kernels import ISSUES, compiles
from .named_files import unmounted
from .offload import check_offload, shm_size
from .packages import check_packages
from .permission import check_remote_code, check_secrets
from .preload import bound
from .residents import check_memory, demands_of, groups_of, resident_warnings, share_out, shares_of
from .runtime import container_of, devices_of, image_of, launch_of, venv_of
from .scale import door_of, scale_of
from .start_failures import START_FAILURES
from .strategies import SINGLE_NODE
from .variants import check_format, untried_hardware, variant_doubts

# What an instance has to allow is named in as few errors.
_MOST_PERMISSIONS = 8
# Where everybody who sets up a host reaches it.
SSH_PORT = 22

__all__ = ["Accelerator", "Library", "PlanError", "SiteSettings", "plan_instances"]


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
) -> list[PlanDocument]:
    """Return the plan of every instance of a host, replicas included, in the order of their names.

    ``instances`` is the value of ``vllm_instances``. Raises PlanError for the first instance that cannot be served.
    """
    check_instances(instances)
    if not instances:
        return []
    instances = with_dashes(instances)
    shared = _Shared(host, accelerator, site, library)
    return _plan_together(shared, instances, {name: _advisor(shared, name, instances[name]) for name in instances})


def _advisor(shared: _Shared, name: str, requested: Mapping[str, Any]) -> Serves:
    """Return what tells whether an instance can be planned, alone, with changes."""

    def serves(*, chip: Accelerator | None = None, hosts: int = 1, **keys: Any) -> bool:
        instance = {**requested, **keys, "args": {**(requested.get("args") or {}), **keys.get("args", {})}}
        # Those that take turns with others do so on the same chips.
        left_out = {"residents"}
        site, accelerator = shared.site, chip or shared.accelerator
        if chip is not None:
            # There are as many of them as one replica has here.
            left_out |= {"chips", "replicas"}
        if accelerator.stack != shared.accelerator.stack:
            # The releases and images of another stack are others.
            left_out.add("release")
            site = replace(site, release="", image="", runtime="")
        if hosts > 1:
            left_out |= {"replicas", "chips", *(["strategy"] if instance.get("strategy") in SINGLE_NODE else [])}
            nodes = [shared.host, *(f"{shared.host}-{number}" for number in range(2, hosts + 1))]
            instance["nodes"] = nodes
            site = replace(site, members={node: {"address": node, "interface": node} for node in nodes})
        instance = {key: value for key, value in instance.items() if key not in left_out}
        changed = replace(shared, accelerator=accelerator, site=site)
        for _permission in range(_MOST_PERMISSIONS):
            try:
                plan = _plan_together(changed, {name: instance}, {})[0]
            except PermissionNeededError as exc:
                allowed = {key: {**(instance.get(key) or {}), **values} for key, values in exc.settings.items()}
                instance = {**instance, **allowed}
            except PlanError:
                return False
            else:
                manifest = shared.library.manifest(plan["models"][0]) or {}
                return hosts == 1 or not size_doubts(plan["args"], manifest.get("config") or {}, name)
        return False

    return serves


def _plan_together(shared: _Shared, instances: Mapping[str, Any], advisors: Mapping[str, Serves]) -> list[PlanDocument]:
    """Return the plans of checked instances; an advisor tells which advice a refusal may give, always without one."""
    host, accelerator, site, library = shared.host, shared.accelerator, shared.site, shared.library
    chosen = [
        with_chips(
            choose(host, name, instances[name], accelerator, site, library, advisors.get(name, always)), accelerator
        )
        for name in sorted(instances)
    ]
    for entry in chosen:
        sizes = entry.choice.sizes
        check_parts(entry.where, entry.demand.chips, sizes.tensor, entry.group is not None, entry.runtime, accelerator)
    demands = demands_of(chosen)
    allotted = share_out(chosen, allot(demands, accelerator))
    plans: list[PlanDocument] = []
    loaded = {}
    for entry in chosen:
        composed = compose_settings(entry, accelerator, site, library, len(allotted[entry.name][0]))
        loaded[entry.name] = loaded_models(composed)
        doubts = doubts_about(entry, composed, accelerator, site, library)
        for number, chips in enumerate(allotted[entry.name], 1):
            plans.append(_plan(shared, entry, composed, doubts, number, chips))
    _check_together(plans, chosen, accelerator)
    note_other_groups({plan["instance"]: plan["group"] for plan in plans if "group" in plan})
    args = {plan["instance"]: plan["args"] for plan in plans}
    plans[0]["warnings"].extend(check_memory(chosen, args, loaded, allotted, accelerator, library))
    for members in groups_of(chosen).values():
        for entry in members:
            _plan_of(entry.name, plans)["warnings"].extend(resident_warnings(entry, members, accelerator))
    left = unused_chips(demands, allotted, accelerator)
    if left:
        plans[0]["warnings"].append(left)
    return plans


def _plan_of(name: str, plans: Sequence[PlanDocument]) -> PlanDocument:
    """Return the plan of an instance with one replica."""
    return next(plan for plan in plans if plan["instance"] == name)


def _warnings(
    entry: Chosen, composed: Composed, facts: Mapping[str, Any], accelerator: Accelerator, library: Library
) -> list[str]:
    files = {"recipes": entry.requested["recipe"], "releases": entry.release_name, "weights": entry.pinned}
    warnings = [note for kind, name in files.items() for note in library.notes(kind, name)]
    warnings += entry.software.warnings
    warnings += cache_doubt(entry, composed, accelerator, library)
    warnings += size_doubts(composed.args, config_of(entry, library), entry.where)
    warnings += untried_hardware(entry.recipe, accelerator, entry.where)
    warnings += variant_doubts(entry.recipe, entry.choice.variant, accelerator, entry.where)
    warnings += judge(entry.recipe, facts, entry.where, entry.serves)
    warnings += [
        f"{entry.where}: the recipe's {name} has no effect: {steps[-1].because}"
        for key, steps in composed.history.items()
        for name in [key[4:] if key.startswith("env.") else f"--{key}"]
        if steps and steps[-1].layer == "collection" and steps[-1].value is None
    ]
    warnings += _features_left_out(entry, accelerator)
    warnings += without_effect(entry.where, entry.requested)
    warnings += [
        f"{entry.where}: the recipe's --{name} has no effect; the instance's {key} counts"
        for name, key in PLACE.items()
        if name in composed.history
    ]
    return warnings


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
) -> PlanDocument:
    """Return the plan of one replica on its chips."""
    accelerator, site, library = shared.accelerator, shared.site, shared.library
    name = replica_name(entry.name, number)
    model = entry.model
    manifest = library.manifest(entry.pinned)
    check_format(entry.recipe, model, manifest, accelerator, entry.where, entry.serves)
    check_packages(entry, manifest, library.families.get("packages") or ())
    weights = weights_path(manifest, site) if manifest else None
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
    mounts = mounts_of(name, weights, composed, accelerator, site, mounted_for(role, accelerator))
    start = _start(entry, accelerator, site, chips, mounts, shm_size(composed.args, len(chips)))
    places = {"model": weights, "venv": (start["venv"] or {}).get("path")}
    composed = bound(name, entry, composed, env, places, library)
    memory = required_memory(entry, composed, accelerator, library, manifest, len(chips))
    args = to_mapping(composed.args, entry.table)
    secrets = sorted(site.secrets.get(entry.name) or ())
    check_secrets(entry, secrets, site, library.foreign(accelerator.stack), library.restrictions)
    facts = {
        **facts_of(entry, accelerator),
        "args": args,
        "env": env,
        "instance": composed.set_by(entry.where),
        "secrets": dict.fromkeys(secrets, True),
        "config": config_of(entry, library),
        "quantization": quantizations(args, (manifest or {}).get("precision") or entry.variant.get("precision")),
    }
    if group and role == DECODE:
        group["router"] = router_of(group["address"], listen, entry.requested, site.venv_root, library.router())
    config = {"model": weights or model, "served-model-name": served, **listen, **composed.args}
    compilers = compiles(kernels_of(entry, accelerator, site), env, accelerator.generation)
    models = list(dict.fromkeys([entry.pinned, *named_models(composed)]))
    check_remote_code(entry, composed, {name: library.manifest(name) for name in models})
    exposed = [] if role in INNER else exposure(entry.where, entry.name, listen["host"], secrets)
    warnings = [
        *exposed,
        *overridden,
        *_warnings(entry, composed, facts, accelerator, library),
        *estimate_doubt(entry, composed, accelerator, library, memory, len(chips)),
        *doubts,
        *_unpinned(entry, models, library),
        *unmounted(entry.where, composed.args, start["mounts"]),
    ]
    document: PlanDocument = {
        "host": shared.host,
        "instance": name,
        "replica_of": entry.name,
        "accelerator": accelerator.model,
        "stack": accelerator.stack,
        "generation": accelerator.generation,
        "runtime": entry.runtime,
        "vllm_version": str(entry.release["vllm"]),
        "release": entry.release_name,
        "recipe": str(entry.requested["recipe"]),
        "variant": entry.choice.variant,
        "preset": entry.choice.preset,
        "strategy": entry.choice.strategy,
        "features": dict(entry.choice.features),
        "model": model,
        "revision": manifest["revision"] if manifest else None,
        "weights": weights,
        "models": models,
        "served_model_names": served,
        "listen": listen,
        "env": env,
        "args": args,
        "config": to_config(config, entry.table),
        "argv": [*to_argv(config, entry.table), *middleware.words],
        "middleware": list(middleware.words),
        "chips": list(chips),
        "secrets": secrets,
        "memory_required_gib": memory,
        "known_issues": [*known_issues(entry.recipe, facts), *(ISSUES if compilers else ()), *START_FAILURES],
        "compilers": compilers,
        "explain": explain(composed, args, env),
        "warnings": warnings,
        "image": start["image"],
        "container": start["container"],
        "venv": start["venv"],
        "launch": start["launch"],
        "libraries": start["libraries"],
        "devices": start["devices"],
        "mounts": start["mounts"],
    }
    if group:
        document["group"] = group
    if entry.requested.get("residents") is not None:
        document["residents"] = entry.requested["residents"]
    if entry.requested.get("preload"):
        document["preload"] = True
    if accelerator.divided:
        document["partition"] = str(accelerator.partition)
    if accelerator.numbers and chips:
        document["numbers"] = [accelerator.number_of(chip) for chip in chips]
    if scale := scale_of(entry.requested):
        document["scale"] = scale
    # Replicas share no mapping or list.
    return cast(PlanDocument, _copied(document))


def _start(
    entry: Chosen, accelerator: Accelerator, site: SiteSettings, chips: tuple[int, ...], mounts: list[str], shm: str
) -> StartDocument:
    """Return the fields of the plan that depend on the runtime: image and container, or the virtual environment."""
    devices = devices_of(accelerator, chips)
    own = entry.software.image
    image = image_of(entry.stack, accelerator, site.image, site.registry, own) if entry.runtime == "container" else None
    container = container_of(entry.stack, accelerator, image, devices, mounts, shm) if image else None
    venv = venv_of(entry.release, entry.stack, accelerator, site.venv_root) if container is None else None
    if venv and has_metadata(entry):
        venv["distribution"] = f"{entry.release['vllm']}+{accelerator.stack}"
    return {
        "image": image,
        "container": container,
        "venv": venv,
        "launch": launch_of(venv, container),
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


def _check_together(plans: Sequence[PlanDocument], chosen: Sequence[Chosen], accelerator: Accelerator) -> None:
    """Raise PlanError for conflicts between the instances of one host."""
    names = [plan["instance"] for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(
                f"vllm_instances.{name}: a replica of another instance has the same name; rename one of them"
            )
    ports = {plan["instance"]: (plan["replica_of"], plan["listen"]["port"]) for plan in plans if plan["listen"]}
    own = {SSH_PORT: "SSH"}
    if door_of(plans[0]["host"], {plan["instance"]: plan for plan in plans}):
        own[DOOR_PORT] = "the door of scale"
    check_ports(ports, own)
    groups = {plan["instance"]: plan["group"] for plan in plans if "group" in plan}
    taken = {**own, **{port: f"vllm_instances.{name}" for name, (_origin, port) in ports.items()}}
    check_group_ports(groups, taken)
    check_router_ports(groups, taken)
    args = {plan["instance"]: plan["args"] for plan in plans}
    chips = {plan["instance"]: len(plan["chips"]) for plan in plans}
    shares = {
        plan["instance"]: (plan["chips"], Engine(plan["vllm_version"]).share(plan["args"]))
        for plan in plans
        if plan["chips"]
    }
    check_shares(shares_of(shares, chosen))
    check_offload(args, chips, accelerator)
    check_host_memory({plan["instance"]: plan["memory_required_gib"] for plan in plans}, accelerator)
