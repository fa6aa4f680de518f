# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ..module_utils.accelerator.recognition import AcceleratorError
from ..module_utils.encodings.library import list_uses
from ..module_utils.vllm.plan_document import PlanDocument
from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.catalog.option_tables import load_exclusive, load_replaced
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.places import misplaced
from ..plugin_utils.common.preload import preload
from ..plugin_utils.common.role_options import SERVING
from ..plugin_utils.fleet.groups import describe_absent
from ..plugin_utils.fleet.hardware import accelerator_of
from ..plugin_utils.fleet.host_plans import PATHS, check_pinned, plan_host
from ..plugin_utils.fleet.host_reader import FleetError, HostReader
from ..plugin_utils.fleet.members import expand, members_of, spans
from ..plugin_utils.fleet.ports import listens_of
from ..plugin_utils.fleet.secret_names import check_secret_names
from ..plugin_utils.planning.explanation import COLLECTION
from ..plugin_utils.planning.hardware import Accelerator
from ..plugin_utils.planning.inputs import SETTINGS, PlanError
from ..plugin_utils.planning.kernels import COMPILATION, compiles_sampler
from ..plugin_utils.planning.scale import check_scale_hosts, door_of

preload(load_catalogue, load_exclusive, load_replaced)


class ActionModule(ControllerAction):
    """Plans the instances of a host."""

    # If the hardware was detected before, the role accelerator does not check options.
    ROLES = SERVING

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables.get("inventory_hostname", "")
        try:
            reader = HostReader(variables.get("hostvars"), self._loader)
            chips = accelerator(options)
            plans = plan_host(host, chips, {**settings_of(options), **_grouped(options, variables, reader)})
            check_pinned(plans, options["weights_manifest_path"])
            hosts = list((variables.get("groups") or {}).get("all") or [])
            check_secret_names(options["secret_names"], options["instances"], reader, hosts)
        except (AcceleratorError, FleetError, PlanError) as exc:
            raise PlanError(f"{host}: {exc}") from exc
        made = [entry["venv"] for entry in plans.values() if entry["venv"]]
        made += [entry["group"]["router"]["venv"] for entry in plans.values() if "router" in entry.get("group", {})]
        venvs = {each["path"]: each for each in made}
        places = {f"vllm_{name}": options[name] for name in PATHS}
        texts = [text for entry in plans.values() for text in entry["warnings"]]
        texts += misplaced(places, variables.get("ansible_inventory_sources") or ())
        warnings = dict.fromkeys(f"{host}: {text}" for text in texts)
        return {
            "asked": options["instances"],
            "plans": plans,
            "models": sorted({model for entry in plans.values() for model in entry["models"]}),
            "venvs": list(venvs.values()),
            "images": sorted({entry["image"] for entry in plans.values() if entry["image"]}),
            # A worker of an instance that spans hosts listens on no port of ours.
            "ports": {name: entry["listen"].get("port", 0) for name, entry in plans.items()},
            "listens": listens_of(plans),
            "groups": {name: entry["group"] for name, entry in plans.items() if "group" in entry},
            "scale": door_of(variables["inventory_hostname"], plans),
            "libraries": sorted({library for entry in plans.values() for library in entry["libraries"]}),
            "compilers": compilers_of(plans),
            "samplers": samplers_of(plans, chips.compute_capability),
            "containers": {name: entry["container"] for name, entry in plans.items() if entry["container"]},
            "encodings": list_uses(plans),
            "warnings": list(warnings),
        }


def _grouped(options: Mapping[str, Any], variables: Mapping[str, Any], reader: HostReader) -> dict[str, Any]:
    """Return the settings of instances that span hosts; none where all are on one. Raises PlanError, FleetError."""
    check_scale_hosts(options["instances"], (variables.get("groups") or {}).get("all") or ())
    if not spans(options["instances"]):
        return {}
    instances = expand(options["instances"], variables["groups"])
    for text in describe_absent(instances, variables["ansible_play_hosts_all"]):
        raise PlanError(text)
    return {"instances": instances, "members": reader.places_of(members_of(instances))}


def compilers_of(plans: Mapping[str, PlanDocument]) -> dict[str, list[str]]:
    """Return the compilers that the first starts of the instances need, by the Python whose headers they need."""
    found: dict[str, set[str]] = {}
    for entry in plans.values():
        if entry["compilers"] and entry["venv"]:
            found.setdefault(entry["venv"]["python"], set()).update(entry["compilers"])
    return {python: sorted(tools) for python, tools in sorted(found.items())}


def samplers_of(plans: Mapping[str, PlanDocument], capability: str | None) -> list[dict[str, Any]]:
    """Return the environments in which FlashInfer compiles its sampler, as flashinfer_sampler takes them.

    Root compiles, with the collection's own compilers only: where an instance names others, its first start compiles.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in plans.values():
        if capability and entry["venv"] and compiles_sampler(entry["compilers"], entry["env"]):
            path, origins = entry["venv"]["path"], {row["key"]: row["layer"] for row in entry["explain"]}
            given = {name: entry["env"][name] for name in COMPILATION if name in entry["env"]}
            if any(origins[f"env.{name}"] != COLLECTION for name in given):
                continue
            found.setdefault(path, {"path": path, "compute_capability": capability, "environment": given})
    return list(found.values())


def settings_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's options as plan_host takes them."""
    given = {**options, **options["site"], "secrets": options["secret_names"]}
    return {name: given[name] for name in ("instances", *SETTINGS, *PATHS) if name in given}


def accelerator(options: Mapping[str, Any]) -> Accelerator:
    """Return the detected accelerators; facts that a task passes replace the detected ones."""
    catalogue = load_catalogue(options["accelerator_catalog_path"])
    return accelerator_of({**options["accelerator"], **options["facts"]}, catalogue)
