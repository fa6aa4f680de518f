# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan which replicas a gateway may start and stop, and through which hosts."""

import json
from typing import Any, Mapping, Protocol

from ...module_utils.instance.scale_door import PORT
from ...module_utils.vllm.plan_document import PlanDocument
from ..planning.scale import AUTO
from .admission import places_of


class Service(Protocol):
    """What is needed of a service; ``engines`` has the host and the plan of each server by its name."""

    name: str
    servers: list[dict[str, Any]]
    engines: dict[str, tuple[str, PlanDocument]]


def scale_plan(
    gateway: str, services: Mapping[str, Service], options: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the part ``scale`` of the agent's configuration, empty where no service has it, and the problems."""
    scaled = {
        name: service
        for name, service in services.items()
        if any("scale" in plan for _host, plan in service.engines.values())
    }
    if not scaled:
        return {}, []
    problems = [text for service in scaled.values() for text in _problems(gateway, service, options)]
    if not options["has_secret"]:
        problems.append(
            f"vllm_instances.{next(iter(scaled))}.scale: gateway_secret is empty, with which a gateway proves to hosts "
            "what it is; set it for all hosts of the site, or BAREMETAL_STATE_DIR for the run"
        )
    if problems:
        return {}, problems
    doors: dict[str, str] = {}
    entries = {name: _service(service, doors) for name, service in scaled.items()}
    return {"gateway": gateway, "doors": doors, "services": entries}, []


def may_be_empty(service: Service) -> bool:
    """Return whether the last replica of a service may stop."""
    scales = [plan.get("scale") for _host, plan in service.engines.values()]
    return bool(scales) and all(scale and not scale["min"] and scale["mode"] == AUTO for scale in scales)


def _service(service: Service, doors: dict[str, str]) -> dict[str, Any]:
    """Return the entry of a service; add the doors of its hosts to ``doors``."""
    scale = next(plan["scale"] for _host, plan in service.engines.values())
    replicas = {}
    for server in service.servers:
        host, plan = service.engines[server["name"]]
        fixed = bool(scale["hosts"]) and host not in scale["hosts"]
        if not fixed:
            doors.setdefault(host, f"{server['address']}:{PORT}")
        replicas[server["name"]] = {
            "address": f"{server['address']}:{server['port']}",
            "host": host,
            "instance": plan["instance"],
            "places": places_of(plan),
            "resident": "residents" in plan,
            "fixed": fixed,
        }
    return {"min": scale["min"], "max": scale["max"], "mode": scale["mode"], "replicas": replicas}


def _problems(gateway: str, service: Service, options: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the scale of a service."""
    where = f"vllm_instances.{service.name}.scale"
    found: dict[str, list[str]] = {}
    for host, plan in service.engines.values():
        found.setdefault(json.dumps(plan.get("scale"), sort_keys=True, default=str), []).append(host)
    if len(found) > 1:
        listed = "; ".join(f"{', '.join(dict.fromkeys(hosts))}: {text}" for text, hosts in found.items())
        return [f"{where}: its hosts have different ones ({listed}); give all of them the same"]
    scale = next(plan["scale"] for _host, plan in service.engines.values())
    hosts = list(dict.fromkeys(host for host, _plan in service.engines.values()))
    absent = [host for host in scale["hosts"] if host not in hosts]
    if absent:
        return [
            f"{where}.hosts: {absent[0]} has no instance {service.name} behind {gateway}, so it cannot hold a replica; "
            f"expected some of {', '.join(hosts)}"
        ]
    problems = []
    if scale["max"] > len(service.servers):
        problems.append(
            f"{where}.max: found {scale['max']}, and {', '.join(hosts)} have {len(service.servers)} replicas; lower "
            "it, or give the instance to more hosts"
        )
    if max(scale["min"], 1) < options["min_available"]:
        problems.append(
            f"{where}.min: found {scale['min']}, and gateway_min_available is {options['min_available']}; raise min"
        )
    return problems
