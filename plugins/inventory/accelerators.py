# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: accelerators
short_description: Sort hosts by their accelerators
version_added: 0.3.0
description:
  - Puts hosts into groups by stack (C(accel_cuda)), generation (C(accel_hopper)) and model (C(accel_h200)) of their
    accelerators, each below the one before, and by C(cluster) and C(site).
  - Sorts the hosts of earlier inventory sources (INI, YAML, NetBox, clouds), and adds hosts from fleet files (YAML,
    JSON, CSV).
  - A host's accelerators are declared in its variables (C(accelerator) and C(accelerator_count), or C(accelerators) for
    several kinds), were found by C(playbooks/discover.yml), are in Ansible's fact cache (C(accelerator_detected)), or
    are read from its BMC over Redfish. The first of these decides. A source that disagrees is reported by a warning, by
    the variable C(accelerator_conflict) and by the group of that name.
  - The name of the file must be or end with C(accelerators.yml) or C(accelerators.yaml).
  - Hosts with a chip that is not in the catalogue are in C(accel_unknown). Hosts about which nothing is known are in
    none of these groups.
author:
  - the baremetal.inference authors (@baremetal-inference)
requirements:
  - for O(redfish), the Python package C(redfish[aiohttp]) on the controller
extends_documentation_fragment:
  - ansible.builtin.constructed
  - ansible.builtin.inventory_cache
options:
  plugin:
    description: The name of this plugin.
    type: str
    required: true
    choices: [baremetal.inference.accelerators]
  fleet_files:
    description:
      - Files with hosts, names or globs, relative to this file.
      - YAML and JSON hold C(hosts), a mapping of names to variables. CSV has a header with the names of the variables,
        the host's column is C(name).
      - Texts in these files are data and never templates.
    type: list
    elements: str
    default: []
  catalog_path:
    description: Directories with the site's own files of accelerators, relative to this file; the first wins.
    type: list
    elements: str
    default: []
  discovery_cache:
    description:
      - The file in which C(playbooks/discover.yml) stores its answers, relative to this file.
      - If not set, a file named after the directory of this file, in C(discovery) below E(BAREMETAL_STATE_DIR), or
        without that variable in C(~/.ansible/accelerators).
    type: str
    env:
      - name: ACCELERATORS_DISCOVERY_CACHE
  use_vars_plugins:
    description: Read C(group_vars) and C(host_vars), and use other enabled vars plugins.
    type: bool
    default: true
  use_fact_cache:
    description:
      - Read C(accelerator_detected) from Ansible's fact cache.
      - Slow if the cache holds all facts of many hosts.
    type: bool
    default: true
  redfish:
    description: Ask the BMC of each host that has the variable C(accelerator_bmc), its address.
    type: bool
    default: false
  redfish_username:
    description: User of the BMCs; the variable C(accelerator_bmc_username) of a host takes precedence.
    type: str
    env:
      - name: REDFISH_USERNAME
  redfish_password:
    description: Password of the BMCs; the variable C(accelerator_bmc_password) of a host takes precedence.
    type: str
    env:
      - name: REDFISH_PASSWORD
  redfish_verify:
    description: Verify the certificates of the BMCs.
    type: bool
    default: true
  redfish_ca_file:
    description: CA certificates to verify the BMCs' certificates with, relative to this file.
    type: str
  redfish_parallel:
    description: Number of BMCs to query at the same time.
    type: int
    default: 50
  redfish_timeout:
    description: Seconds to wait for one response of a BMC.
    type: float
    default: 4
  redfish_deadline:
    description: Seconds that one BMC may take in total.
    type: float
    default: 8
"""

EXAMPLES = r"""
# The hosts are listed in a table.
plugin: baremetal.inference.accelerators
fleet_files:
  - fleet/*.csv
---
# The hosts come from an earlier source: ansible-playbook -i netbox.yml -i accelerators.yml ...
plugin: baremetal.inference.accelerators
compose:
  accelerator: custom_fields.accelerator
  cluster: cluster.slug
keyed_groups:
  - key: rack
    prefix: rack
---
# Nothing runs on the hosts yet, but their BMCs respond.
plugin: baremetal.inference.accelerators
fleet_files: [bmcs.csv]
redfish: true
redfish_username: inventory
redfish_password: "{{ lookup('ansible.builtin.env', 'BMC_PASSWORD') }}"
cache: true
cache_plugin: ansible.builtin.jsonfile
cache_connection: ~/.ansible/accelerators/cache
"""

import os
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ..module_utils.accelerator.recognition import AcceleratorError, Catalogue
from ..module_utils.common.foreign_text import escape_lines
from ..module_utils.common.kinds import show_value
from ..plugin_utils.catalog.accelerators import load_catalogue
from ..plugin_utils.common.group_names import CONFLICT_GROUP
from ..plugin_utils.common.output import warn
from ..plugin_utils.common.state_dir import StateDirError
from ..plugin_utils.common.tables import hosts_in_words
from ..plugin_utils.common.templates import EVALUATES_ALL, as_text
from ..plugin_utils.discovery.cache import read_discovery, users_own
from ..plugin_utils.discovery.observations import DiscoveryError, Entry
from ..plugin_utils.inventory.candidates import (
    BMC_NAMES,
    NAMES,
    Candidate,
    Seen,
    bmc_of,
    collect_statements,
    kept_chips,
    regional_groups,
)
from ..plugin_utils.inventory.fleet_files import find_files, kept_fleet, load_text, read_fleet, refuse_inventories
from ..plugin_utils.inventory.fleet_formats import FleetFileError, FleetHost
from ..plugin_utils.inventory.host_variables import CachedFacts, HostVariables
from ..plugin_utils.inventory.placing import add_groups, add_hosts, areas_of, check_names, mark_earlier
from ..plugin_utils.inventory.sorting import Sorter, SortingError
from ..plugin_utils.inventory.source_cache import SourceCache
from ..plugin_utils.inventory.source_options import SourceOptionError, check_options
from ..plugin_utils.redfish.ask import Limits, ask_bmcs
from ..plugin_utils.redfish.chips import Chips, RedfishError

NO_HOST = (
    "no source before this one has a host. Ansible reads the files of a directory by name, so give this file a name "
    "that comes last, such as z-accelerators.yml"
)


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Read everything known about all hosts, decide, and only then change the inventory."""

    NAME = "baremetal.inference.accelerators"

    def verify_file(self, path: str) -> bool:
        """Return whether the file is one of this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("accelerators.yml", "accelerators.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Sort the hosts of the inventory and those of this source."""
        super().parse(inventory, loader, path, cache)
        self._path = os.path.abspath(path)
        self._read_options(path)
        self._source_cache = SourceCache(self, path, cache, warn)
        # For a directory, Ansible records its files only, not the directory.
        sources = [source for source in (*inventory.processed_sources, path) if source]
        self._variables = HostVariables(loader, inventory, sources, self.get_option("use_vars_plugins"))
        self._wanted = NAMES + BMC_NAMES if self.get_option("redfish") else NAMES
        self._facts = CachedFacts(self.get_option("use_fact_cache"), warn)
        try:
            catalogue = load_catalogue([self._resolved(name) for name in self.get_option("catalog_path")])
            candidates = self._candidates(catalogue)
            self._commit(candidates, Sorter(catalogue))
        except (AcceleratorError, DiscoveryError, FleetFileError, RedfishError, SortingError, StateDirError) as exc:
            # With the cause, Ansible would print everything twice.
            raise AnsibleParserError(escape_lines(str(exc))) from None
        try:
            self._construct(candidates)
        except AnsibleError as exc:
            raise AnsibleParserError(f"{path}: groups, keyed_groups: {exc}") from exc

    def _read_options(self, path: str) -> None:
        """Read the plugin's own file. Raises AnsibleParserError that names the file and the option."""
        try:
            check_options(self.loader.load_from_file(path, cache="none"), self.option_definitions, self.NAME)
            self._read_config_data(path)
        except SourceOptionError as exc:
            raise AnsibleParserError(f"{path}: {exc}") from None
        except AnsibleParserError:
            raise
        except (AnsibleError, ValueError) as exc:
            raise AnsibleParserError(f"{path}: {exc}") from exc

    def _resolved(self, name: str) -> str:
        """Return a path that is relative to the source's file."""
        return os.path.normpath(os.path.join(os.path.dirname(self._path), os.path.expanduser(name)))

    # Reading: nothing is changed here.

    def _candidates(self, catalogue: Catalogue) -> list[Candidate]:
        """Return all hosts with all statements about them."""
        mark_earlier(self.inventory)
        fleet = {host.name: host for host in self._fleet()}
        earlier = [host for name, host in self.inventory.hosts.items() if name not in fleet]
        candidates = [self._earlier(host) for host in earlier]
        candidates += [self._from_fleet(host) for host in fleet.values()]
        if not candidates and not self.get_option("fleet_files"):
            warn(f"{self._path}: {NO_HOST}")
        seen = Seen(catalogue, self._discovery())
        for candidate in candidates:
            candidate.new.update(seen.discovered(candidate.name))
            if self.get_option("compose"):
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
        files, warnings = find_files(self.get_option("fleet_files"), directory, self._path)
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
        self._discovery_cache = self._resolved(self.get_option("discovery_cache") or users_own(self._path))
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
        host = self.inventory.hosts.get(entry.name)
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
        for name, expression in self.get_option("compose").items():
            try:
                value = self._compose(expression, everything)
            except Exception as exc:
                if self.get_option("strict"):
                    raise SortingError(candidate.problem(f"compose.{name}: {exc}")) from exc
                continue
            candidate.new[name] = value
            if name in self._wanted:
                candidate.variables[name] = value

    def _ask_bmcs(self, candidates: list[Candidate]) -> dict[str, Chips]:
        """Return what the BMCs report about their hosts; a warning names those that did not answer."""
        login = {name: self.get_option(f"redfish_{name}") for name in ("username", "password")}
        bmcs = [bmc_of(candidate, login) for candidate in candidates if candidate.variables.get("accelerator_bmc")]
        if not bmcs:
            return {}
        limits = Limits(
            parallel=self.get_option("redfish_parallel"),
            timeout=self.get_option("redfish_timeout"),
            deadline=self.get_option("redfish_deadline"),
            verify=self.get_option("redfish_verify"),
            ca_file=self._resolved(self.get_option("redfish_ca_file")) if self.get_option("redfish_ca_file") else None,
        )
        key = self._source_cache.key("redfish", sorted(f"{bmc.host} {bmc.address}" for bmc in bmcs))
        known = self._source_cache.load(key, kept_chips) or {}
        silent: dict[str, list[str]] = {}
        # Only answers are cached, so a corrected password, or a BMC that is back, has an effect immediately.
        wanted = [bmc for bmc in bmcs if bmc.host not in known]
        for answer in ask_bmcs(wanted, limits) if wanted else []:
            if answer.chips:
                known[answer.host] = answer.chips
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
        areas = areas_of(self.inventory, candidates)
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
        check_names(self.inventory, candidates, {*members, *(name for edge in edges for name in edge)})
        add_groups(self.inventory, members, edges)
        add_hosts(self.inventory, candidates, members)
        self.inventory.set_variable("all", "accelerator_discovery_cache", self._discovery_cache)
        lines = [f"{hosts_in_words(names)}: {text}" for text, names in conflicts.items()]
        for warning in [*areas.warnings, *([f"{CONFLICT_GROUP}: " + "; ".join(lines)] if lines else [])]:
            warn(warning)

    def _construct(self, candidates: list[Candidate]) -> None:
        """Apply groups and keyed_groups, as every inventory plugin does."""
        composed, keyed, strict = (self.get_option(name) for name in ("groups", "keyed_groups", "strict"))
        if not composed and not keyed:
            return
        for candidate in candidates:
            host = self.inventory.hosts[candidate.name]
            groups = [group.name for group in host.get_groups()]
            variables = self._variables.read_all(host.name, host.vars, groups)
            variables.update(self._facts.of(host.name))
            self._add_host_to_composed_groups(composed, variables, host.name, strict=strict, fetch_hostvars=False)
            self._add_host_to_keyed_groups(keyed, variables, host.name, strict=strict, fetch_hostvars=False)
