# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the instances of hosts on the controller; equal hosts are planned once."""

import json
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Mapping, Sequence

from ...module_utils.vllm.plan_document import PlanDocument
from ..catalog.accelerators import load_catalogue, servable_chips
from ..catalog.files import file_notes, find, load_families, load_manifest, load_recipe, load_release, load_router
from ..catalog.option_tables import (
    load_exclusive,
    load_foreign,
    load_replaced,
    load_restrictions,
    load_table,
    other_tables,
    releases,
)
from ..options.table import Foreign, OptionTable, OptionTableError
from ..planning.hardware import Accelerator
from ..planning.inputs import SETTINGS, Library, PlanError, SiteSettings, UnknownNameError
from ..planning.instances import check_instances
from ..planning.plan import plan_instances

# Where a site's own recipes, releases and manifests are.
PATHS = ("recipe_path", "release_path", "weights_manifest_path")

# The plans of this process, by all of their inputs.
_PLANS: dict[str, dict[str, PlanDocument]] = {}


def library(
    recipe_path: Sequence[str] = (),
    release_path: Sequence[str] = (),
    weights_manifest_path: Sequence[str] = (),
) -> Library:
    """Return the source of files for plans, each found once: the site's directories first, then the catalogue."""
    paths = {"recipes": recipe_path, "releases": release_path, "weights": weights_manifest_path}
    return Library(
        recipe=cache(lambda name: load_recipe(name, recipe_path)),
        release=cache(lambda name: load_release(name, release_path)),
        manifest=cache(lambda name: load_manifest(name, weights_manifest_path)),
        table=_table,
        others=other_tables,
        foreign=_foreign,
        replaced=load_replaced(),
        exclusive=load_exclusive(),
        families=load_families(),
        restrictions=load_restrictions(),
        notes=cache(lambda kind, name: file_notes(kind, name, paths[kind])),
        chips=cache(lambda count: servable_chips(load_catalogue(), count)),
        router=cache(load_router),
    )


def _table(version: str, strict: bool) -> OptionTable:
    try:
        return load_table(version)
    except OptionTableError as exc:
        if strict:
            raise PlanError(f"{exc}; or set vllm_strict: false to use the newest table") from exc
        return load_table(releases()[-1])


def _foreign(stack: str) -> Foreign:
    try:
        return load_foreign(stack)
    except OptionTableError as exc:
        raise PlanError(str(exc)) from exc


def plan_host(host: str, accelerator: Accelerator, settings: Mapping[str, Any]) -> dict[str, PlanDocument]:
    """Return the plan of each instance of a host as plain data, by name. Raises PlanError.

    ``settings`` holds ``instances``, the fields of a Site (those left out have its defaults), and ``recipe_path``,
    ``release_path`` and ``weights_manifest_path``. Hosts with the same settings share the plans but for their name.
    """
    instances = settings["instances"]
    check_instances(instances)
    # Only the plan of an instance that spans hosts depends on the name of the host.
    spans = any(requested.get("nodes") for requested in instances.values())
    if accelerator.host_memory_mib:
        # It differs by some MiB between equal hosts, which share their plans.
        accelerator = replace(accelerator, host_memory_mib=accelerator.host_memory_mib // 1024 * 1024)
    key = json.dumps([asdict(accelerator), settings, host if spans else None], default=str)
    if key not in _PLANS:
        _PLANS[key] = _planned(host, accelerator, settings)
    return {name: {**plan, "host": host} for name, plan in _PLANS[key].items()}


def check_pinned(plans: Mapping[str, PlanDocument], directories: Sequence[str]) -> None:
    """Raise PlanError for weights that no manifest pins: they can be planned, but no host can fetch them."""
    for plan in plans.values():
        for model in plan["models"]:
            try:
                find("weights", model, (".yml", ".yaml"), directories)
            except UnknownNameError as exc:
                raise PlanError(f"vllm_instances.{plan['replica_of']}: {exc}") from exc


def check_wheel_index(plans: Mapping[str, PlanDocument], settings: Mapping[str, Any]) -> None:
    """Raise PlanError for a virtual environment whose wheels come from no index: no host can create it."""
    for plan in plans.values() if settings.get("wheel_index") == "" else ():
        router = plan["group"].get("router") if "group" in plan else None
        if not plan["venv"] and not (router and router["venv"]):
            continue
        where = f"vllm_instances.{plan['replica_of']}"
        is_own = settings["instances"][plan["replica_of"]].get("runtime") or not settings.get("runtime")
        reason = f"{where}.runtime is venv" if is_own else "vllm_runtime is venv"
        reason = reason if plan["venv"] else f"{where}.decode needs the environment of vllm-router"
        # Locks of other stacks have wheels that are on no public index, such as torch 2.13.0+cpu.
        other = ", or PyPI's for hosts with internet" if plan["stack"] == "cuda" else "; PyPI does not have all wheels"
        raise PlanError(
            f"vllm_wheel_index: found nothing, and {reason}, so wheels come from an index; expected the address of the "
            f"site's mirror, such as http://mirror/simple/{other}"
        )


def plan_equipped_host(host: str, accelerator: Accelerator, settings: Mapping[str, Any]) -> dict[str, PlanDocument]:
    """Return the plans of plan_host. Raises PlanError, also for environments that no host can create."""
    plans = plan_host(host, accelerator, settings)
    check_wheel_index(plans, settings)
    return plans


def plan_pinned_host(host: str, accelerator: Accelerator, settings: Mapping[str, Any]) -> dict[str, PlanDocument]:
    """Return the plans of plan_equipped_host. Raises PlanError, also for weights that no host can fetch."""
    plans = plan_equipped_host(host, accelerator, settings)
    check_pinned(plans, list(settings.get("weights_manifest_path") or ()))
    return plans


def _planned(host: str, accelerator: Accelerator, settings: Mapping[str, Any]) -> dict[str, PlanDocument]:
    paths = {key: tuple(settings.get(key) or ()) for key in PATHS}
    site = SiteSettings(**{"release": "", **{key: settings[key] for key in SETTINGS if settings.get(key) is not None}})
    plans = plan_instances(host, accelerator, settings["instances"], site, library(**paths))
    return {plan["instance"]: plan for plan in plans}
