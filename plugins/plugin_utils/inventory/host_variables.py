# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of hosts while an inventory is read: few variables of many hosts.

Ansible itself asks every vars plugin for every host. This module reads each set of groups once, and reads a host
only where a file in host_vars could belong to it.
"""

import os
from functools import reduce
from typing import Any, Callable, Iterable, Mapping, Sequence

from ansible import constants
from ansible.inventory.group import Group
from ansible.inventory.helpers import get_group_vars, sort_groups
from ansible.inventory.host import Host
from ansible.plugins.loader import cache_loader, vars_loader
from ansible.template import Templar
from ansible.utils.vars import combine_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from ..common.templates import as_text

# The only vars plugin whose directories are known here.
_FILES = ("host_group_vars", "ansible.builtin.host_group_vars")
_MEMORY = ("memory", "ansible.builtin.memory")


class HostVariables:
    """Read variables in Ansible's order: groups, group_vars, the host's own, host_vars.

    ``sources`` are the inventory's sources; group_vars and host_vars are beside them. Without ``use_vars_plugins`` only
    the sources' own variables are read.
    """

    def __init__(self, loader: Any, inventory: Any, sources: Sequence[str], use_vars_plugins: bool) -> None:
        self._inventory = inventory
        self._loader = loader
        self._sources = list(sources) if use_vars_plugins else []
        self._of_groups: dict[frozenset[str], Mapping[str, Any]] = {}
        # The first query makes Ansible load its vars plugins; listing them earlier would hide them from it.
        get_vars_from_inventory_sources(loader, self._sources, [inventory.groups["all"]], "all")
        self._with_files = _hosts_with_files(self._sources)

    def of_groups(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Return the merged variables of these groups and of ``all``; each set of groups is read once.

        A group that the inventory does not have yet is looked up by its name. Do not change the result.
        """
        key = frozenset(names) - {"all"}
        if key not in self._of_groups:
            above = self._inventory.groups["all"]
            groups = sort_groups([self._inventory.groups.get(name) or Group(name) for name in key])
            declared = combine_vars(above.get_vars(), get_group_vars(groups))
            asked = get_vars_from_inventory_sources(self._loader, self._sources, [above, *groups], "all")
            self._of_groups[key] = combine_vars(declared, asked)
        return self._of_groups[key]

    def of_host(self, name: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a source's variables of a host (``own``) merged with host_vars. Do not change the result."""
        if self._sources and (self._with_files is None or name in self._with_files):
            asked = get_vars_from_inventory_sources(self._loader, self._sources, [Host(name)], "all")
            return dict(combine_vars(own, asked))
        return own

    def read_all(self, name: str, own: Mapping[str, Any], groups: Iterable[str]) -> dict[str, Any]:
        """Return all variables of a host in these groups, for an expression of compose."""
        magic = {
            "inventory_hostname": name,
            "inventory_hostname_short": name.split(".")[0],
            "group_names": sorted(groups),
        }
        return dict(reduce(combine_vars, (self.of_groups(groups), self.of_host(name, own), magic)))

    def read_named(
        self, names: Iterable[str], host: str, own: Mapping[str, Any], groups: Sequence[str]
    ) -> dict[str, Any]:
        """Return the named variables of a host in these groups, with templates rendered."""
        layers = (self.of_groups(groups), self.of_host(host, own))
        found = {name: layer[name] for layer in layers for name in names if name in layer}
        for name, value in found.items():
            if isinstance(value, str) and ("{{" in value or "{%" in value):
                # Ansible renders only templates from trusted sources.
                variables = self.read_all(host, own, groups)
                found[name] = Templar(loader=self._loader, variables=variables).template(value)
        return found


def _hosts_with_files(sources: Sequence[str]) -> set[str] | None:
    """Return the names with an entry in a host_vars directory; None if further vars plugins are enabled."""
    if any(plugin.ansible_name not in _FILES for plugin in vars_loader.all(class_only=True)):
        return None
    if any(name not in _FILES for name in constants.VARIABLE_PLUGINS_ENABLED):
        return None
    names: set[str] = set()
    for source in sources:
        directory = source if os.path.isdir(source) else os.path.dirname(source)
        try:
            entries = os.listdir(os.path.join(directory, "host_vars"))
        except OSError:
            continue
        names.update(entries)
        names.update(os.path.splitext(entry)[0] for entry in entries)
    return names


class CachedFacts:
    """The facts that Ansible caches between runs, if it caches any."""

    def __init__(self, enabled: bool, warn: Callable[[str], None]) -> None:
        self._cache = None
        self._warn = warn
        if enabled and constants.CACHE_PLUGIN not in _MEMORY:
            self._cache = cache_loader.get(constants.CACHE_PLUGIN)

    def of(self, host: str) -> Mapping[str, Any]:
        """Return the facts of a host, empty where there are none."""
        if self._cache is None or not self._cache.contains(host):
            return {}
        try:
            facts = self._cache.get(host)
        except Exception as exc:  # cache plugins raise anything; one host's damaged facts must not end the run
            self._warn(f"the fact cache of {host} cannot be read and is ignored: {exc}")
            return {}
        return as_text(dict(facts)) if isinstance(facts, Mapping) else {}
