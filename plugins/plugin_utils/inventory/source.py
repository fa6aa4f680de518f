# SPDX-License-Identifier: GPL-3.0-or-later
"""A source of the inventory plugin: read everything known about all hosts, decide, then change the inventory."""

import os
from dataclasses import replace
from typing import Any, Sequence

from ...module_utils.accelerator.recognition import AcceleratorError, Catalogue
from ...module_utils.common.kinds import show_value
from ..catalog.accelerators import load_catalogue
from ..common.group_names import CONFLICT_GROUP
from ..common.output import warn
from ..common.state_dir import StateDirError
from ..common.tables import hosts_in_words
from ..common.templates import EVALUATES_ALL, as_text
from ..discovery.cache import read_discovery, users_own
from ..discovery.observations import DiscoveryError, Entry
from ..redfish.ask import Limits, ask_bmcs
from ..redfish.chips import Chips, RedfishError
from .candidates import BMC_NAMES, NAMES, Candidate, Seen, bmc_of, collect_statements, kept_chips, regional_groups
from .fleet_files import find_files, kept_fleet, load_text, read_fleet, refuse_inventories
from .fleet_formats import FleetFileError, FleetHost
from .host_variables import CachedFacts, HostVariables
from .placing import add_groups, add_hosts, areas_of, check_names, mark_earlier
from .sorting import Sorter, SortingError
from .source_cache import SourceCache

# What a source may raise; the message is the whole sentence.
ERRORS = (AcceleratorError, DiscoveryError, FleetFileError, RedfishError, SortingError, StateDirError)
NO_HOST = (
    "no source before this one has a host. Ansible reads the files of a directory by name, so give this file a name "
    "that comes last, such as z-accelerators.yml"
)


class Source:
    """One file of the plugin; ``plugin`` is the plugin that reads it, with its options and its inventory."""

    def __init__(self, plugin: Any, path: str, cache: bool, processed: Sequence[str]) -> None:
        self._plugin, self._option, self._path = plugin, plugin.get_option, os.path.abspath(path)
        self._source_cache = SourceCache(plugin, path, cache, warn)
        # For a directory, Ansible records its files only, not the directory.
        sources = [source for source in (*processed, path) if source]
        inventory, use = plugin.inventory, plugin.get_option("use_vars_plugins")
        self._variables = HostVariables(plugin.loader, inventory, sources, use)
        self._wanted = NAMES + BMC_NAMES if plugin.get_option("redfish") else NAMES
        self._facts = CachedFacts(plugin.get_option("use_fact_cache"), warn)

    def sort(self) -> list[Candidate]:
        """Sort the hosts of the inventory and those of this source. Raises an error of ERRORS."""
        catalogue = load_catalogue([self._resolved(name) for name in self._option("catalog_path")])
        candidates = self._candidates(catalogue)
        self._commit(candidates, Sorter(catalogue))
        return candidates

    def _resolved(self, name: str) -> str:
        """Return a path that is relative to the source's file."""
        return os.path.normpath(os.path.join(os.path.dirname(self._path), os.path.expanduser(name)))

    # Reading: nothing is changed here.

    def _candidates(self, catalogue: Catalogue) -> list[Candidate]:
        """Return all hosts with all statements about them."""
        mark_earlier(self._plugin.inventory, self._plugin.loader)
        fleet = {host.name: host for host in self._fleet()}
        earlier = [host for name, host in self._plugin.inventory.hosts.items() if name not in fleet]
        candidates = [self._earlier(host) for host in earlier]
        candidates += [self._from_fleet(host) for host in fleet.values()]
        if not candidates and not self._option("fleet_files"):
            warn(f"{self._path}: {NO_HOST}")
        seen = Seen(catalogue, self._discovery())
        for candidate in candidates:
            candidate.new.update(seen.discovered(candidate.name))
            if self._option("compose"):
                self._compose_variables(candidate)
        shown = self._ask_bmcs(candidates)
        for candidate in candidates:
            bmc = seen.by_bmc(shown[candidate.name]) if candidate.name in shown else {}
            try:
                collect_statements(candidate, self._facts.of(candidate.name), bmc, catalogue)
            except SortingError as exc:
                raise SortingError(candidate.problem(exc)) from exc
        for warning in seen.warnings:
            warn(warning)
        return candidates

    def _fleet(self) -> list[FleetHost]:
        """Return the hosts of the fleet files."""
        directory = os.path.dirname(self._path)
        files, warnings = find_files(self._option("fleet_files"), directory, self._path)
        refuse_inventories(files)
        texts = [load_text(name) for name in files]
        key = self._source_cache.key("fleet", [text.digest for text in texts])
        hosts, doubts = self._source_cache.load(key, kept_fleet) or ([], [])
        if not hosts:
            hosts, doubts = read_fleet(texts)
            if self._source_cache.is_enabled:
                self._source_cache.save(
                    key, [[(host.name, host.variables, host.file, host.line) for host in hosts], doubts]
                )
        for warning in [*warnings, *doubts]:
            warn(warning)
        return [replace(host, variables=as_text(host.variables)) for host in hosts] if EVALUATES_ALL else hosts

    def _discovery(self) -> dict[str, Entry]:
        """Return the answers of the last discovery; an unreadable file counts as missing."""
        self._discovery_cache = self._resolved(self._option("discovery_cache") or users_own(self._path))
        try:
            return read_discovery(self._discovery_cache)
        except DiscoveryError as exc:
            warn(f"{exc}; not read, playbooks/discover.yml rebuilds it")
            return {}

    def _earlier(self, host: Any) -> Candidate:
        """Return a host of an earlier source."""
        groups = tuple(group.name for group in host.get_groups())
        variables = self._variables.read_named(self._wanted, host.name, host.vars, groups)
        return Candidate(host.name, host.vars.get("inventory_file") or self._path, variables, groups, host.vars)

    def _from_fleet(self, entry: FleetHost) -> Candidate:
        """Return a host of a fleet file; an earlier source may have it as well."""
        groups = regional_groups(entry)
        own = entry.variables
        host = self._plugin.inventory.hosts.get(entry.name)
        if host:
            groups += tuple(group.name for group in host.get_groups())
            own = {**host.vars, **own}
            for name in NAMES:
                ours, theirs = entry.variables.get(name), host.vars.get(name)
                if None not in (ours, theirs) and str(ours) != str(theirs):
                    place = host.vars.get("inventory_file") or "an earlier source"
                    raise SortingError(
                        f"{entry}: host {entry.name!r}: {name}: found {show_value(ours)}, but {place} says "
                        f"{show_value(theirs)}"
                    )
        variables = self._variables.read_named(self._wanted, entry.name, own, groups)
        return Candidate(entry.name, entry, variables, groups, own, dict(entry.variables))

    def _compose_variables(self, candidate: Candidate) -> None:
        """Add the variables of compose, which map the names of other sources to ours."""
        own = {**candidate.own, **candidate.new}
        everything = self._variables.read_all(candidate.name, own, candidate.groups)
        everything.update(self._facts.of(candidate.name))
        for name, expression in self._option("compose").items():
            try:
                value = self._plugin._compose(expression, everything)
            except Exception as exc:
                if self._option("strict"):
                    raise SortingError(candidate.problem(f"compose.{name}: {exc}")) from exc
                continue
            candidate.new[name] = value
            if name in self._wanted:
                candidate.variables[name] = value

    def _ask_bmcs(self, candidates: list[Candidate]) -> dict[str, Chips]:
        """Return what the BMCs report about their hosts; a warning names those that did not answer."""
        login = {name: self._option(f"redfish_{name}") for name in ("username", "password")}
        bmcs = [bmc_of(candidate, login) for candidate in candidates if candidate.variables.get("accelerator_bmc")]
        if not bmcs:
            return {}
        limits = Limits(
            parallel=self._option("redfish_parallel"),
            timeout=self._option("redfish_timeout"),
            deadline=self._option("redfish_deadline"),
            verify=self._option("redfish_verify"),
            ca_file=self._resolved(self._option("redfish_ca_file")) if self._option("redfish_ca_file") else None,
        )
        key = self._source_cache.key("redfish", sorted(f"{bmc.host} {bmc.address}" for bmc in bmcs))
        known = self._source_cache.load(key, kept_chips) or {}
        silent: dict[str, list[str]] = {}
        # Only answers are cached, so a corrected password, or a BMC that is back, has an effect immediately.
        wanted = [bmc for bmc in bmcs if bmc.host not in known]
        for answer in ask_bmcs(wanted, limits) if wanted else []:
            if answer.found:
                known[answer.host] = answer.found
            else:
                silent.setdefault(answer.reason or "", []).append(answer.host)
        if wanted:
            self._source_cache.save(key, {host: chips.as_dict() for host, chips in known.items()})
        for reason, hosts in silent.items():
            warn(f"Redfish: {hosts_in_words(hosts)}: {reason}")
        return known

    # Decide, then write the inventory.

    def _commit(self, candidates: list[Candidate], sorter: Sorter) -> None:
        """Add hosts, variables and groups to the inventory."""
        areas = areas_of(self._plugin.inventory, candidates)
        members: dict[str, list[str]] = {name: [] for name in sorter.tree.always}
        conflicts: dict[str, list[str]] = {}
        for candidate in candidates:
            place = sorter.place(candidate.statements)
            for group in (*place.groups, *areas.groups[candidate.cluster, candidate.site]):
                members.setdefault(group, []).append(candidate.name)
            if CONFLICT_GROUP in place.variables:
                conflicts.setdefault(place.variables[CONFLICT_GROUP], []).append(candidate.name)
            candidate.new.update(place.variables)
        edges = [*sorter.tree.edges(members), *areas.edges]
        check_names(self._plugin.inventory, candidates, {*members, *(name for edge in edges for name in edge)})
        add_groups(self._plugin.inventory, members, edges)
        add_hosts(self._plugin.inventory, candidates, members)
        self._plugin.inventory.set_variable("all", "accelerator_discovery_cache", self._discovery_cache)
        lines = [f"{hosts_in_words(names)}: {text}" for text, names in conflicts.items()]
        for warning in [*areas.warnings, *([f"{CONFLICT_GROUP}: " + "; ".join(lines)] if lines else [])]:
            warn(warning)

    def construct(self, candidates: list[Candidate]) -> None:
        """Apply groups and keyed_groups, as every inventory plugin does."""
        composed, keyed, strict = (self._option(name) for name in ("groups", "keyed_groups", "strict"))
        if not composed and not keyed:
            return
        for candidate in candidates:
            host = self._plugin.inventory.hosts[candidate.name]
            groups = [group.name for group in host.get_groups()]
            variables = self._variables.read_all(host.name, host.vars, groups)
            variables.update(self._facts.of(host.name))
            self._plugin._add_host_to_composed_groups(
                composed, variables, host.name, strict=strict, fetch_hostvars=False
            )
            self._plugin._add_host_to_keyed_groups(keyed, variables, host.name, strict=strict, fetch_hostvars=False)
