# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a gateway serves: services with their ports and servers, from the plans of the hosts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.spelling import nearest, not_a_number
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import server_name
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.plan_document import PlanDocument
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.tables import hosts_in_words
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.paths import paths_of

EVERYWHERE = ("0.0.0.0", "::", "*", "")  # noqa: S104  (compared only)
LOCAL = "127.0.0.1"
SERVICE_OPTIONS = ("port",)
API_KEY = "VLLM_API_KEY"


class GatewayError(ValueError):
    """The requested gateway is invalid; the message has a line for each problem."""


@dataclass(frozen=True)
class Backend:
    """A serving host: its name, its address as seen from the gateway, and the plans of its instances."""

    host: str
    address: str
    plans: Mapping[str, PlanDocument]


@dataclass
class GatewayService:
    """The instances of one name; ``models`` are the model names that all of them accept."""

    name: str
    port: int = 0
    models: list[str] = field(default_factory=list)
    servers: list[dict[str, Any]] = field(default_factory=list)
    # Model names by server, to report differences.
    names: dict[str, list[str]] = field(default_factory=dict)
    # The first host of the group that a server belongs to, where each host of it is a server.
    groups: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the service as the templates expect it."""
        return {"name": self.name, "port": self.port, "models": self.models, "servers": self.servers}


def decide(gateway: str, backends: Sequence[Backend], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``services``, ``paths``, ``bind``, ``agent`` and ``warnings`` of a gateway. Raises GatewayError.

    The error lists all problems. ``options`` are those of the role without their prefix: ``cluster``, ``port``,
    ``services``, ``min_available``, ``listen``, ``tls``, ``insecure``, ``open``, ``clients``, ``paths``,
    ``stats_port``, ``agent_port``, ``max_body``, ``error_limit``, ``address`` and ``interface``.
    """
    services, problems = _collect_services(gateway, backends)
    problems += _assign_ports(services, options)
    problems += _missing_servers(services, backends, options)
    warnings = _set_models(services, problems)
    paths, wrong = paths_of(options["paths"])
    problems += [*wrong, *_exposed(options), *_unusable_addresses(options), *_negative(options)]
    if problems:
        raise GatewayError("\n".join(problems))
    return {
        "services": [service.as_dict() for service in services.values()],
        "paths": paths,
        "bind": bracketed(options["listen"]),
        "agent": _agent(services),
        "ports": _ports(services, options),
        "warnings": warnings,
    }


def bracketed(address: str) -> str:
    """Return an address in the form in front of a port."""
    return f"[{address}]" if ":" in address else address


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _collect_services(gateway: str, backends: Sequence[Backend]) -> tuple[dict[str, GatewayService], list[str]]:
    """Return the services of all hosts by name, and the problems of their instances."""
    services: dict[str, GatewayService] = {}
    # By sentence: all replicas of an instance, and most hosts, have the same problem.
    problems: dict[str, list[str]] = {}
    for backend in backends:
        for name, plan in backend.plans.items():
            # Of an instance that spans several hosts, only the first one accepts requests.
            if plan.get("group", {}).get("role") == "worker":
                continue
            problem, server = _server(gateway, backend, name, plan)
            service = services.setdefault(plan["replica_of"], GatewayService(plan["replica_of"]))
            if problem:
                known = problems.setdefault(problem, [])
                known += [] if backend.host in known else [backend.host]
                continue
            service.servers.append(server)
            service.names[server["name"]] = list(plan["served_model_names"])
            if plan.get("group", {}).get("role") == "peer":
                service.groups[server["name"]] = plan["group"]["hosts"][0]
    return services, [f"{hosts_in_words(hosts)}: {text}" for text, hosts in problems.items()]


def _server(gateway: str, backend: Backend, name: str, plan: PlanDocument) -> tuple[str, dict[str, Any]]:
    origin, host, port = plan["replica_of"], str(plan["listen"]["host"]), plan["listen"]["port"]
    here = backend.host == gateway
    if is_loopback(host) and not here:
        option = f"vllm_instances.{origin}.host"
        text = f"listens on {host}, where the gateway {gateway} cannot reach it; set {option} to the host's address"
        return f"{origin} {text} in the cluster's network", {}
    if API_KEY in plan["secrets"]:
        text = f"has its own API key, and the gateway forwards no key; remove {API_KEY} from vllm_secrets"
        return f"{origin} {text}.{origin}", {}
    address = (LOCAL if here else backend.address) if host in EVERYWHERE else host
    return "", {
        "name": server_name(backend.host, name),
        "address": bracketed(address),
        "port": port,
    }


def _assign_ports(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> list[str]:
    """Set the ports of the services; return the problems."""
    entries = options["services"]
    if not isinstance(entries, Mapping):
        return [f"gateway_services: found {entries!r}, expected a mapping of services to {{port: ...}}"]
    problems = [text for name, entry in entries.items() for text in _service_problems(str(name), entry, services)]
    if problems:
        return problems
    for name, service in services.items():
        service.port = entries.get(name, {}).get("port", 0)
    unnamed = [service for service in services.values() if not service.port]
    if len(unnamed) > 1:
        names = ", ".join(service.name for service in unnamed)
        return [
            f"gateway_services: {names} have no port, and only one service can use gateway_port; expected "
            f"{{{unnamed[1].name}: {{port: ...}}}} for all but one"
        ]
    for service in unnamed:
        service.port = options["port"]
    return _port_conflicts(services, options)


def _service_problems(name: str, entry: Any, services: Mapping[str, GatewayService]) -> list[str]:
    where = f"gateway_services.{name}"
    if services and name not in services:
        return [f"{where}: no host has an instance of this name; {nearest(name, services)}"]
    if not isinstance(entry, Mapping):
        return [f"{where}: found {entry!r}, expected {{port: ...}}"]
    found = [f"{where}: unknown key {key!r}; {nearest(str(key), SERVICE_OPTIONS)}" for key in entry if key != "port"]
    port = entry.get("port", 1)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        found.append(f"{where}.port: {not_a_number(port, 'a whole number from 1 to 65535')}")
    return found


def _port_conflicts(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> list[str]:
    taken = {options["stats_port"]: "gateway_stats_port"}
    problems = []
    used = [
        (options["agent_port"], "gateway_agent_port"),
        *((each.port, f"the service {each.name}") for each in services.values()),
    ]
    for port, owner in used:
        other = taken.setdefault(port, owner)
        if other != owner:
            problems.append(f"port {port} is used by {other} and by {owner}; give one of them another port")
    return problems


def _ports(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> dict[int, str]:
    """Return the TCP ports of the gateway with the option that sets each."""
    own = {options["stats_port"]: "gateway_stats_port", options["agent_port"]: "gateway_agent_port"}
    return {**own, **{each.port: f"gateway_port or gateway_services.{each.name}" for each in services.values()}}


def _missing_servers(
    services: Mapping[str, GatewayService], backends: Sequence[Backend], options: Mapping[str, Any]
) -> list[str]:
    """Return a problem for each service with too few servers, or one when there is no service."""
    if not services:
        hosts = ", ".join(backend.host for backend in backends)
        where = f"none of {hosts} has vllm_instances" if hosts else "gateway_backends names no host"
        return [
            f"no backend of cluster {options['cluster'] or '(unnamed)'}: {where}; "
            "check gateway_cluster and gateway_backends"
        ]
    min_available = options["min_available"]
    return [
        f"service {service.name} has {len(service.servers)} servers ({', '.join(service.names) or 'none'}), "
        f"gateway_min_available is {min_available}; add servers, or lower it"
        for service in services.values()
        if len(service.servers) < min_available
    ]


def _set_models(services: Mapping[str, GatewayService], problems: list[str]) -> list[str]:
    """Set the models of each service to the names that all its servers accept; return warnings about other names."""
    warnings = []
    for service in services.values():
        lists = list(service.names.values())
        if not lists:
            continue
        service.models = [name for name in lists[0] if all(name in names for names in lists)]
        listed = "; ".join(f"{server}: {', '.join(names)}" for server, names in service.names.items())
        if not service.models:
            problems.append(f"service {service.name}: its servers have no model name in common ({listed})")
        elif any(len(names) > len(service.models) for names in lists):
            warnings.append(f"service {service.name}: not every server accepts every model name ({listed})")
    return warnings


def _exposed(options: Mapping[str, Any]) -> list[str]:
    """Return the options that would expose models or keys without an explicit request."""
    problems = []
    if options["tls"] == "off" and not is_loopback(options["listen"]) and not options["insecure"]:
        problems.append(
            f"gateway_tls is off, and gateway_listen is {options['listen']}: keys would go over the network as they "
            "are; set gateway_tls to own or files, or set gateway_insecure: true"
        )
    if not options["clients"] and not options["open"]:
        problems.append(
            "gateway_clients is empty: name a client with its key_file, or set gateway_open: true to serve without keys"
        )
    if options["clients"] and options["open"]:
        names = ", ".join(options["clients"])
        problems.append(f"gateway_open is true, and gateway_clients names {names}; remove one of the two")
    return problems


def _negative(options: Mapping[str, Any]) -> list[str]:
    return [
        f"gateway_{name}: found {options[name]}, expected a number from 1, or 0 for {meaning}"
        for name, meaning in (("max_body", "no limit"), ("error_limit", "never"))
        if options[name] < 0
    ]


def _unusable_addresses(options: Mapping[str, Any]) -> list[str]:
    problems = []
    try:
        ipaddress.ip_address(options["listen"])
    except ValueError:
        problems.append(f"gateway_listen: found {options['listen']!r}, expected an address, or 0.0.0.0 for all of them")
    if not options["address"]:
        return problems
    try:
        shared = str(ipaddress.ip_interface(options["address"]).ip)
    except ValueError:
        return [*problems, f"gateway_address: found {options['address']!r}, expected an address such as 10.0.0.100/24"]
    if not options["interface"]:
        problems.append("gateway_interface is empty: name the interface for gateway_address, such as eth0")
    if options["listen"] == shared:
        problems.append(
            "gateway_listen is gateway_address, which only one gateway has at a time; set gateway_listen to 0.0.0.0 "
            "or ::"
        )
    return problems


def _agent(services: Mapping[str, GatewayService]) -> dict[str, dict[str, str]]:
    """Return the servers that the agent watches: address and port -> names of server, service and a model to test.

    ``group`` is equal for the servers that serve together, and there for no others.
    """
    return {
        f"{server['address']}:{server['port']}": {
            "name": server["name"],
            "service": service.name,
            "model": service.names[server["name"]][0],
            **({"group": service.groups[server["name"]]} if server["name"] in service.groups else {}),
        }
        for service in services.values()
        for server in service.servers
    }
