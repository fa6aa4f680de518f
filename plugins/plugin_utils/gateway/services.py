# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what a gateway serves: services with their ports and servers, from the plans of the hosts."""

import ipaddress
import re
import zlib
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ...module_utils.common.ip_addresses import is_ip, read_ip
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ...module_utils.gateway.servers import server_name, server_prefix
from ...module_utils.vllm.plan_document import INNER, PlanDocument
from ..common.tables import hosts_in_words
from ..planning.groups import bracketed
from ..planning.side_models import adapter_names
from .admission import AUTO, OFF, assign_places, is_ordered, keep_places, teams_by_class
from .budgets import beyond_team, budgets_of
from .paths import path_problems, paths_of, task_problems, tasks_of
from .routing import Listener, listeners_of, services_by_model
from .scale import may_be_empty, scale_plan

EVERYWHERE = ("0.0.0.0", "::", "*", "")  # noqa: S104  (compared only)
LOCAL = "127.0.0.1"
SERVICE_OPTIONS = ("affinity", "places", "port", "tasks")
AFFINITIES = ("none", "session", "prefix", "client")
API_KEY = "VLLM_API_KEY"
# HAProxy has two buffers of this size for each request that it is reading or answering.
MAX_INSPECT_KIB = 1024
_MAX_SERVER_ID = 2**31 - 1


class GatewayError(ValueError):
    """The requested gateway is invalid; the message has a line for each problem."""


@dataclass(frozen=True)
class Backend:
    """A serving host: its name, its address as seen from the gateway, and the plans of its instances.

    ``tasks`` are those of the recipe of each instance.
    """

    host: str
    address: str
    plans: Mapping[str, PlanDocument]
    tasks: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass
class GatewayService:
    """The instances of one name; ``models`` are the model names that all of them accept."""

    name: str
    port: int = 0
    models: list[str] = field(default_factory=list)
    servers: list[dict[str, Any]] = field(default_factory=list)
    # Model names by server, to report differences.
    names: dict[str, list[str]] = field(default_factory=dict)
    # Those of the names that choose an adapter.
    adapters: list[str] = field(default_factory=list)
    # What all its servers do.
    tasks: tuple[str, ...] = ()
    # What the requests for one server have in common, one of AFFINITIES.
    affinity: str = "none"
    paths: list[dict[str, str]] = field(default_factory=list)
    # The first host of the group that a server belongs to, where each host of it is a server.
    groups: dict[str, str] = field(default_factory=dict)
    # The host and the plan of each server by its name.
    engines: dict[str, tuple[str, PlanDocument]] = field(default_factory=dict)

    @property
    def limited(self) -> list[str]:
        """The models to which a key may be limited within the service: all of one that has adapters."""
        return self.models if any(name in self.models for name in self.adapters) else []

    @property
    def routed(self) -> bool:
        """Whether it has decode hosts: each has a router, which has another host compute the prompts."""
        return bool(self.servers) and all("router" in server for server in self.servers)

    def as_dict(self) -> dict[str, Any]:
        """Return the service as the templates expect it."""
        return {
            "name": self.name,
            "port": self.port,
            "models": self.models,
            "limited": self.limited,
            "servers": self.servers,
            "paths": self.paths,
            "affinity": self.affinity,
            "routed": self.routed,
            "ordered": is_ordered(self),
            **({"awaits": True} if may_be_empty(self) else {}),
        }


def decide(gateway: str, backends: Sequence[Backend], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a gateway serves: ``services``, ``listeners``, ``agent`` and so on, with ``warnings``.

    ``budgets`` are the tokens that clients and teams may use. ``models`` maps each model name to the
    services that a key needs for it. Raises GatewayError with all problems.
    ``options`` are those of the role without their prefix: ``cluster``, ``port``, ``services``, ``models``,
    ``min_available``, ``listen``, ``tls``, ``insecure``, ``open``, ``clients``, ``teams``, ``paths``,
    ``stats_port``, ``agent_port``, ``tokens``, ``tokens_port``, ``has_secret``,
    ``max_body``, ``error_limit``, ``inspect_kib``, ``address``, ``interface``, ``certificate``, ``certificate_key``
    and ``admission``, and ``shares``: how many gateways share each host.
    """
    services, problems = _collect_services(gateway, backends)
    unusable = _assign_ports(services, options)
    problems += [*unusable, *_missing_servers(services, backends, options), *_ambiguous_hosts(backends)]
    warnings = [*_set_models(services, problems), *_unproven(options), *_without_effect(options)]
    impossible, not_held = assign_places(services, options)
    scale, wrong = scale_plan(gateway, services, options)
    problems += [] if unusable else [*impossible, *wrong]
    warnings += not_held
    listeners: list[Listener] = []
    if not unusable:
        listeners, wrong = listeners_of(services, list(options["services"]), options["models"])
        problems += wrong
    budgets, over = budgets_of(options["clients"], options["teams"], options["tokens"])
    problems += [
        *over, *path_problems(options["paths"]), *_exposed(options), *_unusable_addresses(options), *_negative(options),
        *_inspected(options), *_without_clients(services, options), *_not_limited(services, options["clients"]),
    ]  # fmt: skip
    if problems:
        raise GatewayError("\n".join(problems))
    warnings += beyond_team(options["clients"], budgets)
    favoured = keep_places(services.values(), options)
    for service in services.values():
        service.paths = paths_of(service.tasks, options["paths"])
    return {
        "gateway": gateway,
        "budgets": budgets,
        "services": [service.as_dict() for service in services.values()],
        "listeners": [{**each.as_dict(), "paths": _paths_at(each, services)} for each in listeners],
        "models": services_by_model(services, listeners),
        "bind": bracketed(options["listen"]),
        "agent": _agent(services, options["admission"] == AUTO),
        "scale": scale,
        "classes": teams_by_class(options["teams"]) if options["admission"] != OFF else {},
        "favoured": favoured,
        "ports": _ports(services, options),
        "warnings": warnings,
    }


def _ambiguous_hosts(backends: Sequence[Backend]) -> list[str]:
    """Return the hosts whose servers have names that servers of another host could have."""
    hosts = {server_prefix(backend.host): backend.host for backend in backends}
    return [
        f"the hosts {hosts[start]} and {host}: a server {start}... could be of both; rename one in the inventory"
        for prefix, host in hosts.items()
        for start in (prefix[: dashes.start() + 2] for dashes in re.finditer("(?=--)", prefix[:-2]))
        if start in hosts
    ]


def _unproven(options: Mapping[str, Any]) -> list[str]:
    """Return a warning where tokens are counted, and instances cannot tell who asks for it."""
    if not options["tokens"] or options["has_secret"]:
        return []
    return [
        "gateway_tokens: a user who reaches an instance can have tokens counted for any client, because gateway_secret "
        "is empty; set it for all hosts of the site, or BAREMETAL_STATE_DIR for the run"
    ]


def _without_effect(options: Mapping[str, Any]) -> list[str]:
    """Return a warning for each option that another one keeps from having an effect."""
    unread = "no effect, because gateway_tls is {tls}, expected files; set gateway_tls, or remove it"
    found = [
        f"gateway_{name}: found {show_value(options[name])}, which has {unread.format(tls=options['tls'])}"
        for name in ("certificate", "certificate_key")
        if options[name] and options["tls"] != "files"
    ]
    if options["interface"] and not options["address"]:
        found.append(
            f"gateway_interface: found {show_value(options['interface'])}, which has no effect, because "
            "gateway_address is empty; set the address that gateways share, or remove it"
        )
    return found


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return read_ip(address).is_loopback
    except ValueError:
        return address == "localhost"


def _collect_services(gateway: str, backends: Sequence[Backend]) -> tuple[dict[str, GatewayService], list[str]]:
    """Return the services of all hosts by name, and the problems of their instances."""
    services: dict[str, GatewayService] = {}
    # By sentence: all replicas of an instance, and most hosts, have the same problem.
    problems: dict[str, list[str]] = {}
    for backend in backends:
        for name, plan in backend.plans.items():
            # Of an instance that spans several hosts, some accept no requests of clients.
            if plan.get("group", {}).get("role") in INNER:
                continue
            problem, server = _server(gateway, backend, name, plan)
            service = services.setdefault(plan["replica_of"], GatewayService(plan["replica_of"]))
            if problem:
                known = problems.setdefault(problem, [])
                known += [] if backend.host in known else [backend.host]
                continue
            service.servers.append(server)
            service.engines[server["name"]] = (backend.host, plan)
            tasks = tasks_of(plan["args"], backend.tasks.get(name, ()))
            service.tasks = tuple(task for task in service.tasks if task in tasks) if service.names else tasks
            adapters = adapter_names(plan["args"])
            service.adapters += [adapter for adapter in adapters if adapter not in service.adapters]
            service.names[server["name"]] = [*plan["served_model_names"], *adapters]
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
        **({"router": plan["group"]["router"]["port"]} if "router" in plan.get("group", {}) else {}),
    }


def _assign_ports(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> list[str]:
    """Set the ports and the requested tasks of the services; return the problems."""
    entries = options["services"]
    if not isinstance(entries, Mapping):
        return [f"gateway_services: found {show_value(entries)}, expected a mapping of services to {{port: ...}}"]
    problems = [text for name, entry in entries.items() for text in _service_problems(str(name), entry, services)]
    if problems:
        return problems
    for name, service in services.items():
        service.port = entries.get(name, {}).get("port", 0)
        service.tasks = tuple(entries.get(name, {}).get("tasks", service.tasks))
        service.affinity = entries.get(name, {}).get("affinity", "none")
        _number(service.servers)
        service.port = service.port or options["port"]
    return _port_conflicts(services, options)


def _service_problems(name: str, entry: Any, services: Mapping[str, GatewayService]) -> list[str]:
    where = f"gateway_services.{name}"
    if services and name not in services:
        return [f"{where}: no host has an instance of this name; {nearest(name, services)}"]
    if not isinstance(entry, Mapping):
        return [f"{where}: found {show_value(entry)}, expected {{port: ...}}"]
    found = [
        f"{where}: unknown key {show_value(key)}; {nearest(str(key), SERVICE_OPTIONS)}"
        for key in entry
        if key not in SERVICE_OPTIONS
    ]
    port = entry.get("port", 1)
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        found.append(f"{where}.port: {not_a_number(port, 'a whole number from 1 to 65535')}")
    affinity = entry.get("affinity", "none")
    if affinity not in AFFINITIES:
        found.append(
            f"{where}.affinity: found {show_value(affinity)}, expected one of {', '.join(AFFINITIES)}; "
            f"{nearest(str(affinity), AFFINITIES)}"
        )
    return [*found, *(task_problems(f"{where}.tasks", entry["tasks"]) if "tasks" in entry else [])]


def _number(servers: Sequence[dict[str, Any]]) -> None:
    """Give each server an ``id`` that follows from its name.

    HAProxy hashes ids, so a server that is added or removed leaves the others their requests, and two gateways agree.
    """
    taken: set[int] = set()
    for server in sorted(servers, key=lambda each: str(each["name"])):
        number = zlib.crc32(server["name"].encode()) % _MAX_SERVER_ID + 1
        while number in taken:
            number = number % _MAX_SERVER_ID + 1
        taken.add(number)
        server["id"] = number


def _port_conflicts(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> list[str]:
    taken = {options["stats_port"]: "gateway_stats_port"}
    agent, stats = options["agent_port"], options["stats_port"]
    used = [(agent, "gateway_agent_port")] if agent == stats else []
    taken.setdefault(agent, "gateway_agent_port")
    if options["tokens"]:
        port = options["tokens_port"]
        used += [(port, "gateway_tokens_port")] if port in taken else []
        taken.setdefault(port, "gateway_tokens_port")
    used += [(each.port, _port_option(each.name, options)) for each in services.values() if each.port in taken]
    return [
        f"{owner}: {port} is the port of {taken[port]} too; give one of them another"
        for port, owner in dict.fromkeys(used)
    ]


def _port_option(service: str, options: Mapping[str, Any]) -> str:
    """Return the option that sets the port of a service."""
    return f"gateway_services.{service}.port" if options["services"].get(service, {}).get("port") else "gateway_port"


def _paths_at(listener: Listener, services: Mapping[str, GatewayService]) -> list[dict[str, str]]:
    """Return the paths that any service of a port allows."""
    paths = {tuple(path.items()): path for name in listener.services for path in services[name].paths}
    return list(paths.values())


def _ports(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> dict[int, str]:
    """Return the TCP ports of the gateway with the option that sets each."""
    own = {options["stats_port"]: "gateway_stats_port", options["agent_port"]: "gateway_agent_port"}
    own.update({options["tokens_port"]: "gateway_tokens_port"} if options["tokens"] else {})
    found: dict[int, str] = {}
    for each in services.values():
        found[each.port] = f"{found.get(each.port, 'gateway_port')} or gateway_services.{each.name}"
    return {**own, **found}


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


def _not_limited(services: Mapping[str, GatewayService], clients: Mapping[str, Any]) -> list[str]:
    """Return a problem for each service with adapters whose routers would not pass on what a key is limited to."""
    named = [name for name, entry in clients.items() if isinstance(entry, Mapping) and entry.get("models")]
    return [
        f"service {service.name} has adapters and prefill hosts, where keys cannot be limited to models, and "
        f"gateway_clients.{named[0]} has models; serve the adapters without prefill hosts"
        for service in services.values()
        if named and service.limited and service.routed
    ]


def _without_clients(services: Mapping[str, GatewayService], options: Mapping[str, Any]) -> list[str]:
    return [
        f"gateway_services.{service.name}.affinity is client, and gateway_open is true: without keys the gateway knows "
        "no client; choose session or prefix"
        for service in services.values()
        if service.affinity == "client" and options["open"]
    ]


def _negative(options: Mapping[str, Any]) -> list[str]:
    return [
        f"gateway_{name}: found {options[name]}, expected a number from 1, or 0 for {meaning}"
        for name, meaning in (("max_body", "no limit"), ("error_limit", "never"))
        if options[name] < 0
    ]


def _inspected(options: Mapping[str, Any]) -> list[str]:
    found = options["inspect_kib"]
    if 1 <= found <= MAX_INSPECT_KIB:
        return []
    return [f"gateway_inspect_kib: found {found}, expected a number from 1 to {MAX_INSPECT_KIB}"]


def _unusable_addresses(options: Mapping[str, Any]) -> list[str]:
    problems = []
    if not is_ip(options["listen"]):
        problems.append(
            f"gateway_listen: found {show_value(options['listen'])}, expected an address, or 0.0.0.0 for all of them"
        )
    if not options["address"]:
        return problems
    try:
        shared = str(read_ip(str(ipaddress.ip_interface(options["address"]).ip)))
    except ValueError:
        return [
            *problems,
            f"gateway_address: found {show_value(options['address'])}, expected an address such as 10.0.0.100/24",
        ]
    if not options["interface"]:
        problems.append("gateway_interface is empty: name the interface for gateway_address, such as eth0")
    if options["listen"] == shared:
        problems.append(
            "gateway_listen is gateway_address, which only one gateway has at a time; set gateway_listen to 0.0.0.0 "
            "or ::"
        )
    return problems


def _places(server: Mapping[str, Any]) -> list[int]:
    return [server["places"], server["most"], *([server["kept"]] if "kept" in server else [])]


def _agent(services: Mapping[str, GatewayService], corrects: bool) -> dict[str, dict[str, Any]]:
    """Return the servers that the agent watches: address and port -> names of server, service and a model to test.

    ``group`` is equal for the servers that serve together, and there for no others. ``places`` are there where the
    agent ``corrects`` them: those of this gateway, the most of all gateways, and those kept free.
    """
    return {
        f"{server['address']}:{server['port']}": {
            "name": server["name"],
            "service": service.name,
            "model": service.names[server["name"]][0],
            **({"group": service.groups[server["name"]]} if server["name"] in service.groups else {}),
            **({"places": _places(server)} if corrects and "places" in server else {}),
        }
        for service in services.values()
        for server in service.servers
    }
