# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts of instances that span several: names of groups resolved, and each host's place in their network."""

import ipaddress
import re
from typing import Any, Iterator, Mapping, Sequence

from ...module_utils.common.ip_addresses import is_ip, read_ip
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ..planning.disaggregation import SIDES, check_distinct, check_sides
from ..planning.inputs import PlanError

# The keys of an instance that name hosts.
HOST_KEYS = ("nodes", *SIDES)
NETWORK, ADDRESS, INTERFACE = "vllm_cluster_network", "vllm_cluster_address", "vllm_cluster_interface"
# What decides on a host's place, besides its facts.
PLACE_VARIABLES = (NETWORK, ADDRESS, INTERFACE, "ansible_host")

# What Linux takes, without what has a meaning in files and commands.
_DEVICE = re.compile(r"[\w.:@+-]{1,15}", re.ASCII)

Groups = Mapping[str, Sequence[str]]


class UnknownPlaceError(PlanError):
    """A host's place in the network follows from facts that are not there yet."""


def spans(instances: Any) -> bool:
    """Return whether any instance names hosts; ``instances`` may be malformed."""
    entries = instances.values() if isinstance(instances, Mapping) else ()
    return any(isinstance(entry, Mapping) and any(entry.get(key) for key in HOST_KEYS) for entry in entries)


def expand(instances: Mapping[str, Any], groups: Groups) -> dict[str, Any]:
    """Return the instances with lists of hosts in ``nodes``: the name of an Ansible group stands for its hosts.

    ``nodes`` of an instance with ``decode`` and ``prefill`` are the hosts of both, in this order. Raises PlanError for
    a name that is neither a group nor a host of the inventory.
    """
    return {name: _expanded(name, requested, groups) for name, requested in instances.items()}


def _expanded(name: str, requested: Any, groups: Groups) -> Any:
    if not isinstance(requested, Mapping):
        return requested
    where = f"vllm_instances.{name}"
    check_sides(requested, where)
    if requested.get(SIDES[0]):
        sides = {side: _hosts(requested[side], f"{where}.{side}", groups) for side in SIDES}
        check_distinct(list(sides.values()), where)
        return {**requested, **sides, "nodes": [host for hosts in sides.values() for host in hosts]}
    nodes = requested.get("nodes")
    return {**requested, "nodes": _hosts(nodes, f"{where}.nodes", groups)} if nodes else requested


def _hosts(nodes: Any, where: str, groups: Groups) -> Any:
    """Return the hosts that a list or a group's name stands for."""
    if isinstance(nodes, str):
        if nodes not in groups:
            known = [group for group in groups if group not in ("all", "ungrouped")]
            raise PlanError(f"{where}: the inventory has no group {nodes!r}; {nearest(nodes, known)}")
        nodes = list(groups[nodes])
    if not isinstance(nodes, list) or not all(isinstance(node, str) for node in nodes):
        raise PlanError(f"{where}: found {show_value(nodes)}, expected a group's name or a list of hosts")
    hosts = groups.get("all") or ()
    for node in nodes:
        if node not in hosts:
            raise PlanError(f"{where}: the inventory has no host {node!r}; {nearest(node, hosts)}")
    return nodes


def members_of(instances: Mapping[str, Any]) -> list[str]:
    """Return every host that the nodes of an instance name, each once."""
    found = [node for entry in instances.values() if isinstance(entry, Mapping) for node in entry.get("nodes") or []]
    return list(dict.fromkeys(found))


def place_of(host: str, variables: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a host's ``address`` and ``interface`` in the network of the groups.

    ``variables`` are PLACE_VARIABLES, ``facts`` Ansible's of the network. Raises PlanError where the host has no
    address there or several, UnknownPlaceError where only facts could tell.
    """
    interfaces = dict(_interfaces(facts))
    address = str(variables.get(ADDRESS) or "") or _address_in(host, variables, interfaces)
    if not is_ip(address):
        raise PlanError(
            f"{host}: {ADDRESS}: found {show_value(address)[:80]}, expected an IP address such as 10.20.0.5"
        )
    interface = str(variables.get(INTERFACE) or "") or interfaces.get(address, "")
    if not interface and interfaces:
        raise PlanError(
            f"{host}: {ADDRESS} is {address}, and no interface has it; its addresses are {', '.join(interfaces)}"
        )
    if not interface:
        raise UnknownPlaceError(
            f"{host}: the interface with the address {address} is unknown until Ansible has gathered facts; set "
            f"{INTERFACE} for the host"
        )
    if not _DEVICE.fullmatch(interface):
        raise PlanError(f"{host}: {INTERFACE}: found {show_value(interface)[:80]}, expected a name such as eth0")
    return {"address": address, "interface": interface}


def _address_in(host: str, variables: Mapping[str, Any], interfaces: Mapping[str, str]) -> str:
    """Return the one address of a host in vllm_cluster_network."""
    text = str(variables.get(NETWORK) or "")
    if not text:
        raise PlanError(
            f"{host}: {NETWORK} is missing; set it to the private network that the hosts of a group share, such as "
            f"10.20.0.0/24, or set {ADDRESS} for each host"
        )
    try:
        network = ipaddress.ip_network(text)
    except ValueError as exc:
        raise PlanError(
            f"{host}: {NETWORK}: found {show_value(text)}, expected a network such as 10.20.0.0/24 ({exc})"
        ) from exc
    candidates = list(interfaces) or [str(variables.get("ansible_host") or "")]
    found = [address for address in candidates if _is_in(address, network)]
    if len(found) == 1:
        return found[0]
    if not interfaces:
        raise UnknownPlaceError(
            f"{host}: its address in {NETWORK} {text} is unknown until Ansible has gathered facts; set {ADDRESS} and "
            f"{INTERFACE} for the host"
        )
    seen = ", ".join(f"{address} ({device})" for address, device in interfaces.items() if not found or address in found)
    raise PlanError(
        f"{host}: found {'several addresses' if found else 'no address'} in {NETWORK} {text} ({seen}), expected one; "
        f"set {ADDRESS} for the host"
    )


def _is_in(address: str, network: Any) -> bool:
    try:
        return read_ip(address) in network
    except ValueError:
        return False


def _interfaces(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield address and interface of each address of a host. Facts write ``_`` for ``-`` in names of interfaces.

    A host that is taken over says what it likes, and other hosts write it into their firewalls.
    """
    for name in _listed(facts.get("interfaces")):
        entry = facts.get(str(name).replace("-", "_"))
        if not isinstance(entry, Mapping):
            continue
        for each in (entry.get("ipv4"), *_listed(entry.get("ipv4_secondaries")), *_listed(entry.get("ipv6"))):
            address = str(each.get("address")) if isinstance(each, Mapping) and each.get("scope") != "link" else ""
            if is_ip(address) and not read_ip(address).is_loopback:
                yield address, str(entry.get("device") or name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
