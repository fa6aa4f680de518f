# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the gateways of a host in the inventory, and what else is one server with it there."""

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence, cast

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.gateway.servers import server_name
from ..fleet.spanning import Spanning
from .inventory import INFERENCE, Groups, clusters_of, hosts_of, served_cluster
from .services import GatewayError

GATEWAYS = "gateways"


def gateways_of(hosts: Iterable[str], groups: Groups, variables: Any, group: str = GATEWAYS) -> dict[str, list[str]]:
    """Return the gateways of each host, in the order of their group. Raises GatewayError with all problems.

    ``variables`` maps each host to its variables; ``gateway_cluster`` and ``gateway_backends`` default as in the role.
    """
    found: dict[str, list[str]] = {host: [] for host in hosts}
    # Sets by name: hosts_of tests membership for each host, which would be quadratic with lists.
    members = cast(Mapping[str, Sequence[str]], {name: dict.fromkeys(names) for name, names in groups.items()})
    problems = []
    gateways = groups.get(group, [])
    serving = clusters_of(groups.get(INFERENCE, []), variables) if gateways else {}
    for gateway in gateways:
        own = variables[gateway]
        try:
            served = hosts_of(own.get("gateway_backends") or [], served_cluster(own), members, serving)
        except GatewayError as exc:
            problems.append(f"{gateway}: {exc}")
            continue
        for host in served:
            if host in found:
                found[host].append(gateway)
    if problems:
        raise GatewayError("\n".join(problems))
    return found


def shares_of(hosts: Iterable[str], groups: Groups, variables: Any, gateway: str) -> dict[str, int]:
    """Return for each host how many gateways divide its requests. Raises GatewayError.

    Those with the same shared address count once, because one of them has it. ``variables`` has ``gateway_address``.
    """
    found = gateways_of(hosts, groups, variables)
    return {
        host: len({str(variables[name].get("gateway_address") or name) for name in {*names, gateway}})
        for host, names in found.items()
    }


def hosts_behind(gateways: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the hosts behind each gateway, from the gateways of each host."""
    found: dict[str, list[str]] = {}
    for host, names in gateways.items():
        for name in names:
            found.setdefault(name, []).append(host)
    return found


@dataclass(frozen=True)
class Together:
    """An instance that spans hosts, and the names that its servers have at gateways: of the head, or of each host."""

    instance: str
    hosts: tuple[str, ...]

    @property
    def servers(self) -> list[str]:
        """The possible names; a gateway has the first of them, or all."""
        return [server_name(host, self.instance) for host in self.hosts]


def together_of(hosts: Iterable[str], spanning: Mapping[str, Spanning], instance: str = "") -> list[Together]:
    """Return the instances over several hosts that any of ``hosts`` is a part of, or the named one alone.

    Raises GatewayError where none of the hosts is a part of the named one.
    """
    found = {
        Together(name, tuple(members)): None
        for host in hosts
        for name, members in spanning[host].items()
        if instance in ("", name)
    }
    if instance and not found:
        known = {name for instances in spanning.values() for name in instances}
        hint = nearest(instance, known) if known else "no instance of these hosts does"
        raise GatewayError(
            f"instance: found {show_value(instance)}, expected an instance that spans several hosts; {hint}"
        )
    return list(found)


def groups_behind(groups: Iterable[Together], gateways: Mapping[str, Sequence[str]]) -> dict[str, list[list[str]]]:
    """Return by gateway the names of the servers of each instance, from the gateways of each host."""
    found: dict[str, list[list[str]]] = {}
    for group in groups:
        for gateway in dict.fromkeys(name for host in group.hosts for name in gateways.get(host, ())):
            found.setdefault(gateway, []).append(group.servers)
    return found
