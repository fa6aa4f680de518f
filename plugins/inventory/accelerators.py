# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

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
      - Of Ansible's own variables they set C(ansible_host), C(ansible_port), C(ansible_user) and C(ansible_become)
        only, and no option that names files on the controller.
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

from typing import Any

from ansible.errors import AnsibleError, AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable

from ..module_utils.common.foreign_text import escape_lines
from ..plugin_utils.inventory.source import ERRORS, Source
from ..plugin_utils.inventory.source_options import SourceOptionError, check_options


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    """Read everything known about all hosts, decide, and only then change the inventory."""

    NAME = "baremetal.inference.accelerators"

    def verify_file(self, path: str) -> bool:
        """Return whether the file is one of this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("accelerators.yml", "accelerators.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Sort the hosts of the inventory and those of this source."""
        super().parse(inventory, loader, path, cache)
        self._read_options(path)
        source = Source(self, path, cache, inventory.processed_sources)
        try:
            candidates = source.sort()
        except ERRORS as exc:
            # With the cause, Ansible would print everything twice.
            raise AnsibleParserError(escape_lines(str(exc))) from None
        try:
            source.construct(candidates)
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
