# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan how a gateway holds back requests: the class of each team, and the places of each server.

A place is a request that a server works on. The rest waits at the gateway, by class, then fair between teams.
"""

from typing import Any, Iterable, Mapping, Protocol

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ...module_utils.gateway.places import MOST
from ...module_utils.vllm.plan_document import PlanDocument

# The highest first: the last one is refused first.
CLASSES = ("gold", "standard", "batch")
STANDARD = "standard"
OFF, SHADOW, AUTO = ("off", "shadow", "auto")
# The places of an engine without max-num-seqs: vLLM's own smallest number.
UNKNOWN_PLACES = 256
# One place in so many of a gateway's is kept free for the highest class, and at least one of this many or more.
KEPT_PART, LEAST_WITH_KEPT = 64, 32
# Where a server has fewer, one would be too much of them; where a service has more servers, places become free often.
LEAST_OF_SERVER, MOST_SERVERS = 8, 16


class Service(Protocol):
    """What is needed of a service; ``engines`` has the host and the plan of each server by its name."""

    name: str
    affinity: str
    servers: list[dict[str, Any]]
    engines: dict[str, tuple[str, PlanDocument]]

    @property
    def routed(self) -> bool: ...


def class_problems(where: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the problem of a team's class, if any."""
    found = entry.get("class", STANDARD)
    if found in CLASSES:
        return []
    return [
        f"{where}.class: found {show_value(found)}, expected one of {', '.join(CLASSES)}; "
        f"{nearest(str(found), CLASSES)}"
    ]


def teams_by_class(teams: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the teams of each class but STANDARD, which all others have."""
    return {
        name: [str(team) for team, entry in teams.items() if entry.get("class") == name]
        for name in CLASSES
        if name != STANDARD
    }


def places_of(plan: PlanDocument) -> int:
    """Return how many requests an engine works on at the same time, by its plan."""
    args = plan["args"]
    return int(args.get("max-num-seqs") or UNKNOWN_PLACES) * int(args.get("data-parallel-size") or 1)


def keep_places(services: Iterable[Service], options: Mapping[str, Any]) -> str:
    """Set how many places servers keep free for the highest class; return it, empty where there is no lower one."""
    # A client without a team is STANDARD.
    found = {STANDARD, *(entry.get("class", STANDARD) for entry in options["teams"].values())}
    if options["admission"] != AUTO or len(found) == 1:
        return ""
    for service in services:
        # With affinity each server has its own queue.
        if service.affinity == "none" and len(service.servers) <= MOST_SERVERS:
            _keep([server for server in service.servers if server.get("places", 0) >= LEAST_OF_SERVER])
    return next(name for name in CLASSES if name in found)


def _keep(servers: list[dict[str, Any]]) -> None:
    total, seen = sum(server["places"] for server in servers), 0
    kept = max(1, total // KEPT_PART) if total >= LEAST_WITH_KEPT else 0
    for server in servers:
        before, seen = seen, seen + server["places"]
        if own := kept * seen // total - kept * before // total:
            server["kept"] = own


def is_ordered(service: Service) -> bool:
    """Return whether the engines of a service order their own queues by the priority of requests."""
    return bool(service.engines) and all(
        plan["args"].get("scheduling-policy") == "priority" for _host, plan in service.engines.values()
    )


def assign_places(services: Mapping[str, Service], options: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Set ``most`` places of each server, and ``places``, this gateway's share of them; return problems and warnings.

    ``options["shares"]`` has for each host how many gateways divide the places of its engines.
    """
    mode, entries, shares = options["admission"], options["services"], options["shares"]
    if not isinstance(entries, Mapping):
        return [], []
    problems, warnings = [], []
    for name, service in services.items():
        entry = entries.get(name) if isinstance(entries.get(name), Mapping) else {}
        requested = entry.get("places") if entry else None
        problems += _problems(service, requested, shares)
        if mode == OFF or problems:
            continue
        if service.routed:
            warnings.append(
                f"gateway_admission: {name} has prefill hosts, and the gateway does not hold its requests back"
            )
            continue
        for server in service.servers:
            host, plan = service.engines[server["name"]]
            server["most"] = requested or places_of(plan)
            server["places"] = -(-server["most"] // shares.get(host, 1))
    return problems, warnings


def _problems(service: Service, requested: Any, shares: Mapping[str, int]) -> list[str]:
    where = f"gateway_services.{service.name}.places"
    if requested is None:
        return []
    if isinstance(requested, bool) or not isinstance(requested, int) or not 0 < requested <= MOST:
        expected = f"a whole number from 1 to {MOST}"
        return [f"{where}: {not_a_number(requested, expected)}; leave it out for that of the plan"]
    for server, (host, plan) in service.engines.items():
        if plan["args"].get("max-num-seqs") and requested > places_of(plan):
            return [
                f"{where}: found {requested}, and {server} works on {places_of(plan)} requests at a time "
                "(max-num-seqs); lower it, or raise max-num-seqs of the instances"
            ]
        if requested < shares.get(host, 1):
            return [
                f"{where}: found {requested}, and {shares[host]} gateways share the places of {server}; "
                f"set it to at least {shares[host]}"
            ]
    return []
