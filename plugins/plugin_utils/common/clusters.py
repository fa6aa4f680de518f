# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster of a host: its variable ``cluster``, else its group ``cluster_<name>``. The two never disagree."""

from typing import Any, Iterable, Mapping

from ...module_utils.common.kinds import name_kind, show_value
from .group_names import CLUSTER_PREFIX, name_region_group


class ClusterError(ValueError):
    """The cluster of a host is ambiguous; the message names variable and groups."""


def cluster_of(value: Any, groups: Iterable[str]) -> str:
    """Return the cluster of a host from its variable ``cluster`` and its groups, "" without one.

    Raises ClusterError where the variable and a group disagree, for a host in the groups of two clusters, and for a
    list or mapping, whose text would become a name.
    """
    if isinstance(value, (Mapping, list, tuple)):
        raise ClusterError(f"cluster: found {name_kind(value)}, expected the name of a cluster")
    named = "" if value is None or isinstance(value, bool) else str(value)
    if not named.isprintable():
        raise ClusterError(f"cluster: found {named[:80]!r}, expected the name of a cluster on one line")
    found = sorted({group for group in groups if group.startswith(CLUSTER_PREFIX)})
    others = [group for group in found if named and group != name_region_group("cluster", named)]
    if others:
        raise ClusterError(
            f"cluster: found {show_value(named)}, but the host is in the group {', '.join(others)}; correct one of them"
        )
    if len(found) > 1:
        raise ClusterError(f"the host is in the groups of several clusters, {', '.join(found)}; keep it in one of them")
    return named or (found[0][len(CLUSTER_PREFIX) :] if found else "")


def one_spelling(names: Iterable[str]) -> dict[str, str]:
    """Return the name to use for each name of a cluster: a group has fra_1 where a variable has fra-1."""
    wanted = sorted(set(names))
    plain = {name: name_region_group("cluster", name)[len(CLUSTER_PREFIX) :] for name in wanted}
    spelt = {plain[name]: name for name in wanted if plain[name] != name}
    return {name: spelt.get(plain[name], name) for name in wanted}


def clusters_of(hosts: Iterable[str], variables: Any) -> dict[str, str]:
    """Return the cluster of each host, "" without one.

    ``variables`` maps each host to its variables, ``cluster`` and ``group_names`` among them. Raises ClusterError with
    the problems of all hosts.
    """
    found, problems = {}, []
    for host in hosts:
        own: Mapping[str, Any] = variables[host]
        try:
            found[host] = cluster_of(own.get("cluster"), own.get("group_names") or ())
        except ClusterError as exc:
            problems.append(f"{host}: {exc}")
    if problems:
        raise ClusterError("\n".join(problems))
    spelling = one_spelling(found.values())
    return {host: spelling[cluster] for host, cluster in found.items()}


def same_cluster(one: str, other: str) -> bool:
    """Return whether two names mean the same cluster; one of them may be spelt as in a group name."""
    return name_region_group("cluster", one) == name_region_group("cluster", other)
