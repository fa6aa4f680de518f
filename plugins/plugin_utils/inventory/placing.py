# SPDX-License-Identifier: GPL-3.0-or-later
"""Add many hosts, groups and variables to an Ansible inventory at once."""

import contextlib
import os
from typing import Any, Collection, Iterable, Mapping, Sequence

from ansible.errors import AnsibleError
from ansible.inventory.data import InventoryData
from ansible.plugins.loader import inventory_loader

from ...module_utils.common.kinds import show_value
from ..common.group_names import name_region_group
from ..common.templates import EVALUATES_ALL, as_foreign, as_text, texts_of
from .candidates import Candidate
from .sorting import RegionError, Regions, SortingError, regions

# What reads files that people write; each has hosts and groups with variables.
_WRITTEN = ("yaml", "ini", "toml")


def mark_earlier(inventory: Any, loader: Any) -> None:
    """Keep Ansible from evaluating what earlier inventory plugins say of hosts and groups: it comes from a service.

    A text stays a template where a file of YAML, INI or TOML says the same in that variable of that host or group.
    Nothing else tells them apart: an entry has the variables of all sources, also of a plugin that has failed, and a
    plugin may set any variable or keep its answers as YAML.
    """
    if not EVALUATES_ALL:
        return
    # For a directory, Ansible adds None.
    sources = [source for source in inventory.processed_sources if source]
    scripts = [source for source in sources if _is_script(source)]
    written = {source: _read_written(source, loader) for source in sources if source not in scripts}
    # All releases of Ansible trust scripts as files, and what one has said cannot be read again.
    if scripts and all(found or _is_list(source) for source, found in written.items()):
        return
    for kind in ("hosts", "groups"):
        files = [getattr(found, kind) for found in written.values() if found]
        for name, entry in getattr(inventory, kind).items():
            own = [file[name].vars for file in files if name in file]
            entry.vars = {
                key: as_foreign(value, {text for variables in own for text in texts_of(variables.get(key))})
                for key, value in entry.vars.items()
            }


def _read_written(source: str, loader: Any) -> InventoryData | None:
    """Return the hosts and groups of a source that people write; None for any other."""
    for name in _WRITTEN:
        plugin, found = inventory_loader.get(name), InventoryData()
        with contextlib.suppress(Exception):
            if plugin.verify_file(source):
                plugin.parse(found, loader, source)
                return found
    return None


def _is_list(source: str) -> bool:
    """Return whether a source is a list of names."""
    return "," in source and not os.path.exists(source)


def _is_script(source: str) -> bool:
    """Return whether Ansible runs a source. A plugin's configuration may be executable too."""
    with contextlib.suppress(OSError), open(source, "rb") as file:
        return file.read(4).startswith((b"#!", b"\x7fELF")) and os.access(source, os.X_OK)
    return False


def areas_of(inventory: Any, candidates: Sequence[Candidate]) -> Regions:
    """Return the groups of clusters and sites. Raises SortingError."""
    try:
        areas = regions((candidate.cluster, candidate.site) for candidate in candidates)
    except RegionError as exc:
        named = (candidate for candidate in candidates if getattr(candidate, exc.kind) == exc.value)
        raise SortingError(next(named).problem(exc)) from exc
    for cluster in areas.split_clusters:
        group = inventory.groups.get(name_region_group("cluster", cluster))
        above = [parent.name for parent in group.parent_groups if parent.name.startswith("site_")] if group else []
        if above:
            _refuse_torn(cluster, above, candidates)
    return areas


def _refuse_torn(cluster: str, above: Sequence[str], candidates: Iterable[Candidate]) -> None:
    """Raise SortingError for the first host whose site differs from the site above its cluster's group."""
    for candidate in candidates:
        if candidate.cluster == cluster and name_region_group("site", candidate.site or "") not in above:
            raise SortingError(
                candidate.problem(
                    f"site: found {show_value(candidate.site)}, but an earlier source has put its cluster {cluster!r} "
                    f"below {', '.join(above)}; name the same site for all hosts of a cluster"
                )
            )


def check_names(inventory: Any, candidates: Iterable[Candidate], groups: Collection[str]) -> None:
    """Raise SortingError for a host with the name of one of these groups, or a new host with the name of any group."""
    hosts, known = inventory.hosts, inventory.groups
    for candidate in candidates:
        name = candidate.name
        if name in groups or (name in known and name not in hosts):
            raise SortingError(candidate.problem("a group has this name too; rename the host"))


def add_groups(inventory: Any, names: Iterable[str], edges: Sequence[tuple[str, str]]) -> None:
    """Add groups, and put the second group of each edge below the first.

    Call this before hosts are added: nesting empty groups is fast, but a full group updates every host for each new
    parent. Raises SortingError.
    """
    for name in sorted({*names, *(name for edge in edges for name in edge)}):
        inventory.add_group(name)
    for parent, child in edges:
        try:
            inventory.add_child(parent, child)
        except AnsibleError as exc:
            raise SortingError(f"group {child} cannot be put below {parent}: {exc}") from exc


def add_hosts(inventory: Any, candidates: Iterable[Candidate], members: Mapping[str, Iterable[str]]) -> None:
    """Add hosts with their new variables, and put them into the groups of ``members``."""
    hosts, groups = inventory.hosts, inventory.groups
    for candidate in candidates:
        if candidate.name not in hosts:
            inventory.add_host(candidate.name)
        # set_variable would check every name again, and merge a dictionary with the previous one.
        hosts[candidate.name].vars.update(as_text(candidate.new))
    for name in sorted(members):
        group = groups[name]
        for host in members[name]:
            group.add_host(hosts[host])
