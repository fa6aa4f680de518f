# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the inventory plugin for tests: in this process, or as a user does."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import yaml
from ansible import constants
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import fragment_loader
from ansible.utils.display import Display
from ansible.utils.plugin_docs import add_fragments
from ansible_collections.baremetal.inference.plugins.inventory import accelerators

try:
    from ansible._internal._datatag._tags import Origin
    from ansible.inventory.manager import _InventoryDataWrapper
except ImportError:  # ansible-core 2.18 passes the inventory itself to plugins
    Origin = _InventoryDataWrapper = None

TOP = Path(__file__).resolve().parents[2]
NAME = "baremetal.inference.accelerators"
# What Ansible itself sets for every host.
OF_ANSIBLE = ("inventory_file", "inventory_dir")


@dataclass(frozen=True)
class Sorted:
    """An inventory after the plugin: all hosts of each group, the own variables of each host, and the warnings."""

    inventory: InventoryData
    groups: dict[str, frozenset[str]]
    variables: dict[str, dict]
    warnings: list[str]

    def groups_of(self, host: str) -> set[str]:
        return {group for group, hosts in self.groups.items() if host in hosts} - {"all", "ungrouped"}


@functools.lru_cache(maxsize=None)
def define_options() -> None:
    """Tell Ansible the plugin's options, as its plugin loader does when it loads a plugin."""
    documentation = yaml.safe_load(accelerators.DOCUMENTATION)
    # Their full names need Ansible's own importer of collections, which would be in the way of other tests.
    fragments = [name.replace("ansible.builtin.", "") for name in documentation["extends_documentation_fragment"]]
    documentation["extends_documentation_fragment"] = fragments
    add_fragments(documentation, accelerators.__file__, fragment_loader=fragment_loader)
    constants.config.initialize_plugin_configuration_definitions("inventory", NAME, documentation["options"])


def plugin() -> accelerators.InventoryModule:
    define_options()
    made = accelerators.InventoryModule()
    made._load_name = made.ansible_name = NAME
    made._redirected_names = [NAME]
    return made


def inventory_of(hosts: dict[str, dict], *sources: str) -> InventoryData:
    """Return an inventory as earlier sources leave it."""
    inventory = InventoryData()
    inventory.processed_sources.extend(sources)
    for name, variables in hosts.items():
        inventory.add_host(name)
        for key, value in variables.items():
            inventory.set_variable(name, key, value)
    return inventory


def write_source(directory: Path, files: dict[str, str | bytes], **options: object) -> Path:
    """Write fleet files and the plugin's own file beside them; return the path of that. All files are fleet files."""
    for name, content in files.items():
        (directory / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    source = directory / "accelerators.yml"
    source.write_text(json.dumps({"plugin": NAME, "fleet_files": list(files), **options}))
    return source


def parse(source: Path, inventory: InventoryData | None = None, cache: bool = False) -> Sorted:
    """Let the plugin parse its file in this process. Raises what the plugin raises."""
    inventory = inventory or InventoryData()
    made = plugin()
    # No cache of a discovery but that of the test, whoever runs it.
    environment = {"ACCELERATORS_DISCOVERY_CACHE": str(source.parent / "discovery.json")}
    passed = inventory
    if _InventoryDataWrapper:
        passed = _InventoryDataWrapper(inventory, target_plugin=made, origin=Origin(description="<test>"))
    with mock.patch.dict(os.environ, environment), mock.patch.object(Display, "warning") as warning:
        made.parse(passed, DataLoader(), str(source), cache)
        if made.get_option("cache"):
            made.update_cache_if_changed()
        inventory.reconcile_inventory()
    groups = {name: frozenset(host.name for host in group.get_hosts()) for name, group in inventory.groups.items()}
    variables = {
        name: {key: value for key, value in host.vars.items() if key not in OF_ANSIBLE}
        for name, host in inventory.hosts.items()
    }
    return Sorted(inventory, groups, variables, [str(call.args[0]) for call in warning.call_args_list])


def command(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess:
    """Run one of Ansible's commands as a user in the checkout does; ``home`` takes what it would keep."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    ours = {
        "ANSIBLE_HOME": str(home / "home"),
        "ANSIBLE_NOCOLOR": "1",
        "COLUMNS": "10000",
        "ACCELERATORS_DISCOVERY_CACHE": str(home / "discovery.json"),
    }
    program = Path(sys.executable).parent / words[0]
    return subprocess.run([str(program), *words[1:]], cwd=TOP, env={**clean, **ours, **environment},
                          capture_output=True, text=True, check=False, timeout=300)  # fmt: skip


def listed(source: Path, *options: str, **environment: str) -> subprocess.CompletedProcess:
    """Run ``ansible-inventory --list``."""
    return command(source.parent, "ansible-inventory", "-i", str(source), "--list", *options, **environment)
