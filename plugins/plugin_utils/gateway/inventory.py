# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the input of a gateway's plan from the inventory and the controller: hosts, plans, addresses and keys."""

import os
import stat
from dataclasses import replace
from typing import Any, Iterable, Mapping, Sequence

from ...module_utils.common.ip_addresses import is_ip
from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.gateway.clients import MIN_KEY_LENGTH, Client, KeyFileError, check_clients, hashes_of, shared_keys
from ...module_utils.gateway.expiry import end_of
from ..catalog.files import VARIABLES, load_recipe
from ..common.addresses import is_host
from ..common.clusters import ClusterError, cluster_of, same_cluster
from ..common.clusters import clusters_of as all_clusters
from ..fleet.host_plans import plan_host
from ..fleet.host_reader import HostReader
from ..fleet.plans import Alike, plan_fleet
from .inventory_variables import InventoryVariables
from .services import Backend, GatewayError

INFERENCE = "inference"
# Bytes read of a key file.
MAX_KEY_FILE_BYTES = 64 * 1024

Groups = Mapping[str, Sequence[str]]
HostVariables = Mapping[str, Mapping[str, Any]]


def clusters_of(hosts: Iterable[str], variables: Any) -> dict[str, str]:
    """Return the cluster of each host, "" without one. Raises GatewayError."""
    try:
        return all_clusters(hosts, variables)
    except ClusterError as exc:
        raise GatewayError(str(exc)) from exc


def served_cluster(own: Mapping[str, Any]) -> str:
    """Return the cluster that a gateway serves, from its variables: gateway_cluster, else its own cluster."""
    try:
        return str(own.get("gateway_cluster") or cluster_of(own.get("cluster"), own.get("group_names") or ()))
    except ClusterError as exc:
        raise GatewayError(str(exc)) from exc


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a gateway's plan: nothing stands for an empty list or mapping, and names are texts.

    Raises GatewayError for clients that are no mapping, which the rest of the plan needs.
    """
    empty: dict[str, Any] = {"paths": [], **{name: {} for name in ("services", "models", "clients", "teams")}}
    found = {**options, **{name: none for name, none in empty.items() if options[name] is None}}
    texts = {
        name: {str(key): entry for key, entry in found[name].items()} for name in empty if _is_mapping(found[name])
    }
    if not _is_mapping(found["clients"]):
        raise GatewayError("\n".join(check_clients(found["clients"])))
    return {**found, **texts}


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def hosts_of(named: str | Sequence[str], cluster: str, groups: Groups, serving: Mapping[str, str]) -> list[str]:
    """Return the hosts to serve: those of the hosts and groups ``named``, else those of the cluster.

    A text counts as the names between its commas, as for Ansible. ``serving`` maps the hosts of the group inference to
    their clusters. Where neither they nor the gateway are in a
    cluster, all are served. Raises GatewayError for an unknown name, and where the hosts of several clusters would be
    served.
    """
    if named:
        named = [name.strip() for name in named.split(",")] if isinstance(named, str) else named
        found = {host: None for name in named for host in _expanded(name, groups)}
        return list(found)
    clusters = sorted({name for name in serving.values() if name})
    if not cluster and len(clusters) > 1:
        raise GatewayError(
            f"gateway_cluster: found nothing, and the hosts of the group {INFERENCE} are in the clusters "
            f"{', '.join(clusters)}; set gateway_cluster, or cluster for this gateway"
        )
    if not cluster:
        return list(serving)
    if serving and not clusters:
        raise GatewayError(
            f"gateway_cluster: found {show_value(cluster)}, and no host of the group {INFERENCE} is in a cluster; set "
            "cluster for the hosts, or remove gateway_cluster, and cluster of the gateway"
        )
    matching = {name for name in clusters if same_cluster(name, cluster)}
    if serving and not matching:
        raise GatewayError(
            f"gateway_cluster: no host of the group {INFERENCE} is in the cluster {cluster!r}; "
            f"{nearest(cluster, clusters)}"
        )
    return [host for host, name in serving.items() if name in matching]


def _expanded(name: str, groups: Groups) -> Sequence[str]:
    if name in groups:
        return groups[name]
    if name in groups.get("all", []):
        return [name]
    raise GatewayError(
        f"gateway_backends: {name!r} is neither a host nor a group; {nearest(name, [*groups, *groups.get('all', [])])}"
    )


def backends_of(hosts: Sequence[str], hostvars: Any, loader: Any) -> list[Backend]:
    """Return hosts with the plans of their instances. Raises FleetError with the problems of all hosts."""
    fleet = plan_fleet(hosts, HostReader(hostvars, loader), plan_host)
    fleet.check("the gateway stays unchanged")
    plans = {host: pair for group in fleet.groups for pair in [(group.plans, _tasks(group))] for host in group.hosts}
    variables = InventoryVariables(hostvars, loader)
    return [Backend(host, address_of(host, variables), *plans.get(host, ({}, {}))) for host in hosts]


def _tasks(group: Alike) -> dict[str, Sequence[str]]:
    """Return the tasks of the recipe of each instance."""
    directories = group.variables.get(VARIABLES["recipes"]) or []
    recipes = {name: load_recipe(plan["recipe"], directories) for name, plan in group.plans.items()}
    return {name: (recipe.get("meta") or {}).get("tasks") or () for name, recipe in recipes.items()}


def address_of(host: str, hostvars: HostVariables | InventoryVariables) -> str:
    """Return the address of a host as seen from gateways. Raises GatewayError: HAProxy's configuration holds it."""
    variables = hostvars[host]
    found = str(variables.get("gateway_host_address") or variables.get("ansible_host") or host)
    if not is_host(found):
        raise GatewayError(
            f"{host}: its address is {show_value(found)[:80]}, expected an IP address or the name of a host; set "
            "gateway_host_address for this host"
        )
    return found


def peers_of(gateway: str, options: Mapping[str, Any], groups: Groups, hostvars: HostVariables) -> dict[str, Any]:
    """Return keepalived's peers for the shared address: ``own`` and ``others``."""
    if not options["address"]:
        return {"own": "", "others": []}
    members = [
        host
        for host in groups.get(options["peers"], [])
        if host == gateway or str(hostvars[host].get("gateway_address") or "") == options["address"]
    ]
    if gateway not in members or len(members) < 2:
        raise GatewayError(
            f"gateway_address: {options['address']} is a shared address, and group {options['peers']} (gateway_peers) "
            f"has no second gateway beside {gateway} with this gateway_address; add one, or remove gateway_address"
        )
    addresses = {host: address_of(host, hostvars) for host in members}
    for host, address in addresses.items():
        if not is_ip(address):
            raise GatewayError(
                f"{host}: gateways with a shared address need IP addresses of each other, found {show_value(address)}; "
                "set gateway_host_address for this host"
            )
    others = [address for host, address in addresses.items() if host != gateway]
    return {"own": addresses[gateway], "others": others}


def read_clients(entries: Any, with_keys: bool = True) -> tuple[list[Client], list[str]]:
    """Return the clients with the sha256 of their keys, if these are wanted, and a problem for each invalid entry."""
    problems = check_clients(entries)
    if problems:
        return [], problems
    clients = []
    for name, entry in entries.items():
        try:
            read = "sha256" not in entry and with_keys
            hashes = hashes_of(_read(entry["key_file"])) if read else tuple(entry.get("sha256", ()))
        except KeyFileError as exc:
            path = entry["key_file"]
            # A text that is no path may be the key itself, by mistake.
            shown = (
                path
                if path[0] in "/~." or path.endswith(".key") or len(path) < MIN_KEY_LENGTH
                else f"a text of {len(path)} characters"
            )
            problems.append(f"gateway_clients.{name}.key_file: {shown} {exc}")
            continue
        ends = end_of(entry.get("expires"))
        limits = (entry.get("rate") or 0, entry.get("concurrent") or 0)
        clients.append(
            Client(str(name), tuple(dict.fromkeys(hashes)), *limits, ends=ends, team=entry.get("team") or "")
        )
    return clients, [*problems, *shared_keys(clients)]


def with_services(
    clients: Sequence[Client], entries: Mapping[str, Any], models: Mapping[str, Sequence[str]]
) -> tuple[list[Client], list[str]]:
    """Return the clients with the services of their models, and a problem for each unknown model.

    ``entries`` is gateway_clients; ``models`` maps each model name to the services that a key needs for it.
    """
    problems, found = [], []
    requested = {str(name): entry.get("models") for name, entry in entries.items()} if clients else {}
    for client in clients:
        names = requested[client.name]
        if names is None:
            found.append(client)
            continue
        problems += [
            f"gateway_clients.{client.name}.models: no service accepts {name!r}; {nearest(str(name), models)}"
            for name in names
            if not isinstance(name, str) or name not in models
        ]
        services = dict.fromkeys(service for name in names for service in models.get(str(name), ()))
        found.append(replace(client, services=tuple(services)))
    return found, problems


def _read(path: str) -> str:
    """Return the text of a key file. Raises KeyFileError for a file that other users can read."""
    path = os.path.expanduser(path)
    if not os.path.isabs(path):
        raise KeyFileError("is not an absolute path; give the path on the controller from / or ~")
    try:
        with open(path, encoding="ascii") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise KeyFileError("is not a regular file")
            if status.st_mode & 0o006:
                raise KeyFileError(
                    f"is open to everybody (mode {stat.S_IMODE(status.st_mode):04o}); run chmod 600 on it"
                )
            return file.read(MAX_KEY_FILE_BYTES)
    except UnicodeDecodeError:
        raise KeyFileError("has characters that are invalid in a key") from None
    except OSError as exc:
        raise KeyFileError(f"cannot be read on the controller: {exc.strerror}") from exc
