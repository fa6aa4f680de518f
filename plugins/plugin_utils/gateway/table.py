# SPDX-License-Identifier: GPL-3.0-or-later
"""Format the servers of gateways as a table."""

from typing import Any, Mapping, Sequence

from ...module_utils.gateway.servers import server_name, server_prefix
from ..common.answers import describe_silent
from ..common.tables import hosts_in_words, table

WIDTH = 120
HEADERS = ("gateway", "service", "server", "state", "checks", "running", "drained by, since, reason")
Results = Mapping[str, Mapping[str, Any]]


def gateway_table(results: Results, width: int = WIDTH, instances: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return a table of the servers of each gateway, drained ones first; ``results`` are those of gateway_server.

    ``instances`` are those of gateways_info that span hosts: their servers are shown with the other hosts.
    """
    beside = _hosts_beside(instances)
    rows = [
        (
            (entry["state"] == "ready", entry["up"], gateway, entry["backend"], name),
            _row(gateway, name + beside.get(name, ""), entry),
        )
        for gateway, result in results.items()
        for name, entry in result.get("servers", {}).items()
    ]
    silent = describe_silent(results, "servers")
    if not rows:
        return "\n".join(["No gateway has servers.", *silent])
    services = sorted(
        f"{service} has {found['ready']} of {found['servers']} servers in service at {gateway}"
        for gateway, result in results.items()
        for service, found in result.get("backends", {}).items()
    )
    return "\n".join([table(HEADERS, [row for _order, row in sorted(rows)], width), "", *services, *silent])


def _row(gateway: str, name: str, entry: Mapping[str, Any]) -> list[str]:
    return [
        gateway,
        entry["backend"],
        name,
        {"ready": "ready", "drain": "drained", "maint": "maintenance"}[entry["state"]],
        f"{'up' if entry['up'] else 'down'}{': ' if entry['why'] else ''}{entry['why']}",
        str(entry["sessions"] + entry["queued"]),
        _drained_by(entry),
    ]


def _drained_by(entry: Mapping[str, Any]) -> str:
    """Return who drained a server, since when and why."""
    if entry["state"] == "ready":
        return ""
    if not entry["owner"]:
        return "by hand"
    reason = f": {entry['reason']}" if entry["reason"] else ""
    return f"{entry['owner']} since {entry['since']}{reason}"


def _hosts_beside(instances: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return by server the other hosts of its instance, as the table shows them."""
    return {
        server_name(
            host, entry["instance"]
        ): f" (with {hosts_in_words([each for each in entry['hosts'] if each != host])})"
        for entry in instances
        for host in entry["hosts"]
    }


def gateway_engines(results: Results, host: str, instances: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the instances that are servers of the gateways and run on a host, or on it and others, with their hosts.

    ``instances`` are those of gateways_info that span hosts.
    """
    others = [(each, entry["instance"]) for entry in instances if host in entry["hosts"] for each in entry["hosts"]]
    known = {name for result in results.values() for name in result["servers"]}
    found = [(host, name) for name in gateway_instances(results, host)]
    found += [pair for pair in others if server_name(*pair) in known]
    return [{"host": at, "instance": name} for at, name in dict.fromkeys(found)]


def gateway_instances(results: Results, host: str) -> list[str]:
    """Return the instances of a host that are servers of the gateways."""
    start = server_prefix(host)
    names = (name for result in results.values() for name in result["servers"] if name.startswith(start))
    return sorted({name[len(start) :] for name in names})
