# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet as rows for programs, from the same values as its tables."""

from typing import Any, Mapping, Sequence

from ...module_utils.gateway.servers import server_prefix
from ..common.output import problem_of
from .chips import DRAINED, SERVES, SICK
from .faults import Faults, fault_rows
from .lines import Line
from .service import (
    SEE_HEALTH,
    SEE_SICK,
    Answers,
    Results,
    answer_of,
    prefix_of,
    problem_of_server,
    seconds_in_state,
)

UNKNOWN, STOPPED = "unknown", "stopped"
# Worst first.
ORDER = (SICK, DRAINED, SERVES, STOPPED, UNKNOWN)
Rows = list[dict[str, Any]]


def fleet_rows(lines: Sequence[Line]) -> Rows:
    """Return a row for each host: its place, chips and state, with the reason and the advice."""
    return [
        {
            "host": line.host,
            "site": line.site,
            "cluster": line.cluster,
            "chips": dict(line.chips),
            "state": line.state,
            "why": line.why,
            "advice": line.todo,
            "seen_at": line.seen_at,
        }
        for line in lines
    ]


def instance_rows(
    lines: Sequence[Line],
    results: Results,
    addresses: Mapping[str, str],
    answers: Answers,
    faults: Faults,
    now: float,
) -> Rows:
    """Return a row for each instance of the inventory, and for each server of a gateway that is none of them.

    Times are in seconds since 1970. Requests at several gateways are added up; the worst of their states counts.
    """
    hosts = {server_prefix(line.host): line for line in lines}
    with_health = {line.host for line in lines if line.has_health}
    found = {
        (line.host, name): {**_row(line.host, name), "model": model, "release": dict(line.planned).get(name, "")}
        for line in lines
        for name, model, *_others in line.serves
    }
    called = {(prefix, server_prefix(name)): name for prefix, line in hosts.items() for name, *_rest in line.serves}
    for gateway, result in results.items():
        idle = {name for each in (result.get("scale") or {}).values() for name in each.get("idle", ())}
        for server, entry in result.get("servers", {}).items():
            prefix = prefix_of(server, hosts)
            # A gateway that is taken over may name a server without "--".
            host, _dashes, instance = (
                (hosts[prefix].host, "", server[len(prefix) :]) if prefix else server.partition("--")
            )
            instance = called.get((prefix, f"{instance}--"), instance)
            row = found.setdefault((host, instance), _row(host, instance))
            _add(row, entry, addresses.get(gateway, gateway), server in idle, now)
    last = {(each["host"], each["instance"]): each for each in fault_rows(faults)}
    for (host, instance), row in found.items():
        asked = answer_of(instance, host, answers)
        if asked:
            is_well = asked.get("ok") is True
            row |= (
                {"state": SERVES}
                if is_well
                else {"state": SICK, "why": problem_of(asked), "advice": _named(SEE_SICK, row)}
            )
        row["last_fault"] = last.get((host, instance))
        if row["state"] == SICK and host in with_health:
            row["advice"] += SEE_HEALTH
    return [found[key] for key in sorted(found)]


def _row(host: str, instance: str) -> dict[str, Any]:
    return {
        "host": host,
        "instance": instance,
        "service": instance,
        "model": "",
        "release": "",
        "addresses": [],
        "state": UNKNOWN,
        "why": "",
        "advice": "",
        "since": None,
        "running": None,
        "waiting": None,
    }


def _named(todo: str, row: Mapping[str, Any]) -> str:
    return todo.replace("HOST", row["host"]).replace("INSTANCE", row["instance"])


def _add(row: dict[str, Any], entry: Mapping[str, Any], address: str, is_idle: bool, now: float) -> None:
    """Add what a gateway reports of a server."""
    problem = None if is_idle and not entry["up"] else problem_of_server(entry)
    state, why, todo = problem or (STOPPED if is_idle and not entry["up"] else SERVES, "", "")
    if ORDER.index(state) < ORDER.index(row["state"]):
        row |= {
            "state": state,
            "why": why,
            "advice": _named(todo, row),
            "since": int(now - seconds_in_state(entry, now)),
        }
    row["service"] = entry["backend"]
    row["addresses"].append(address)
    row |= {key: (row[key] or 0) + entry[of] for key, of in (("running", "sessions"), ("waiting", "queued"))}


def service_rows(instances: Rows, results: Results, lines: Sequence[Line]) -> Rows:
    """Return a row for each service: its instances, those that serve, its requests, and tokens per second."""
    called = {(instance, name) for line in lines for instance, names in line.answers for name in names}
    rows = []
    for service in sorted({row["service"] for row in instances}):
        own = [row for row in instances if row["service"] == service]
        rates = [
            max((result.get("tokens_per_s", {}).get(name, 0) for result in results.values()), default=0)
            for instance, name in sorted(called)
            if instance == service
        ]
        queued = [
            result["backends"][service]["queued"]
            for result in results.values()
            if service in result.get("backends", {})
        ]
        rows.append(
            {
                "service": service,
                "servers": len(own),
                "ready": sum(row["state"] == SERVES for row in own),
                **{f"{key}s": sorted({row[key] for row in own if row[key]}) for key in ("model", "release")},
                "addresses": sorted({address for row in own for address in row["addresses"]}),
                "running": sum(row["running"] or 0 for row in own) if results else None,
                "waiting": sum(queued) + sum(row["waiting"] or 0 for row in own) if results else None,
                "tokens_per_second": sum(rates) if results else None,
            }
        )
    return rows
