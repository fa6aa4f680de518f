# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the gateways of a host in the inventory."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Sequence, cast

from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.inventory import (
    INFERENCE,
    Groups,
    clusters_of,
    hosts_of,
    served_cluster,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.services import GatewayError

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


def hosts_behind(gateways: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the hosts behind each gateway, from the gateways of each host."""
    found: dict[str, list[str]] = {}
    for host, names in gateways.items():
        for name in names:
            found.setdefault(name, []).append(host)
    return found
