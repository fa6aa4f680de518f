# SPDX-License-Identifier: GPL-3.0-or-later
"""An earlier inventory plugin that asks a service, judged by Ansible itself: its texts stay texts wherever they are.

What people write in files of YAML and INI stays a template, for the same hosts and groups too. `make matrix` runs this
on each ansible-core that is supported; only 2.18 evaluates texts of inventory plugins.
"""

from __future__ import annotations

import json
import sys

import pytest

from tests.fakes.inventory_plugin import NAME, command

# Answers as NetBox does; from its second run on they come from a cache of YAML.
SERVICE = '''
DOCUMENTATION = """
name: service
short_description: A service
description: A service.
author: nobody
options: {plugin: {description: The name., required: true, choices: [service]}}
"""
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin

class InventoryModule(BaseInventoryPlugin):
    NAME = "service"

    def verify_file(self, path):
        return path.endswith("service.yml")

    def parse(self, inventory, loader, path, cache=True):
        super().parse(inventory, loader, path, cache)
        bad = "{{ lookup('ansible.builtin.pipe', 'touch HARM; echo evaluated') }}"
        inventory.add_host("gpu-1")
        inventory.add_group("rack")
        inventory.add_child("rack", "gpu-1")
        kept = loader.load("- '%s'" % bad.replace("'", "''"))[0]
        for entry in ("gpu-1", "rack", "all"):
            place = entry.replace("-", "_")
            for name, value in {"text": bad, "kept": kept, "pair": (bad, 1), "deep": {"x": [bad]}}.items():
                inventory.set_variable(entry, f"{place}_{name}", value)
        inventory.set_variable("gpu-1", "replaced", bad)
        inventory.set_variable("gpu-1", "inventory_file", "/nowhere")
'''
OWN = "{{ 20 + 3 }}"
FILES = {
    "hosts.yml": f"""
all:
  hosts: {{gpu-1: {{mine: "{OWN}", nested: {{list: ["{OWN}"]}}, replaced: "{OWN}"}}}}
  children: {{rack: {{vars: {{of_group: "{OWN}"}}}}}}
""",
    "hosts.ini": f"""
gpu-1 mine="{OWN}" nested="{{'list': ['{OWN}']}}" replaced="{OWN}"
[rack]
[rack:vars]
of_group={OWN}
""",
    "hosts.json": json.dumps(
        {
            "all": {
                "hosts": {"gpu-1": {"mine": OWN, "nested": {"list": [OWN]}, "replaced": OWN}},
                "children": {"rack": {"vars": {"of_group": OWN}}},
            }
        }
    ),
}


@pytest.fixture
def site(tmp_path):
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "service.py").write_text(SERVICE.replace("HARM", str(tmp_path / "harm")))
    (tmp_path / "service.yml").write_text("plugin: service\n")
    (tmp_path / "z-accelerators.yml").write_text(f"plugin: {NAME}\n")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "rack.yml").write_text(f'of_file: "{OWN}"\n')
    return tmp_path


def seen_by_a_task(site, names, *sources, **settings):
    """Return variables of the host as a task sees them."""
    content = "{{ {" + ", ".join(f"'{name}': {name}" for name in names) + "} | to_json }}"
    copy = {"content": content, "dest": str(site / "seen.json")}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    task = {"ansible.builtin.copy": copy, "delegate_to": "localhost", "vars": local}
    (site / "show.yml").write_text(json.dumps([{"hosts": "gpu-1", "gather_facts": False, "tasks": [task]}]))
    words = [word for source in (*sources, "z-accelerators.yml") for word in ("-i", str(site / source))]
    enabled = f"service,{NAME},script,yaml,ini"
    plugins = {"ANSIBLE_INVENTORY_PLUGINS": str(site / "plugins"), "ANSIBLE_INVENTORY_ENABLED": enabled}
    done = command(site, "ansible-playbook", *words, str(site / "show.yml"), **plugins, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((site / "seen.json").read_text())


@pytest.mark.parametrize("first", [None, *FILES])
def test_no_text_of_a_service_is_evaluated(site, first):
    if first:
        (site / first).write_text(FILES[first])
    own = ["of_file", *(["mine", "nested", "of_group"] if first else [])]
    theirs = [f"{entry}_{name}" for entry in ("gpu_1", "rack", "all") for name in ("text", "kept", "pair", "deep")]
    found = seen_by_a_task(site, [*own, *theirs, "replaced"], *[first] * bool(first), "service.yml")
    assert not (site / "harm").exists(), "a text from outside was evaluated"
    assert all("touch" in json.dumps(found[name]) for name in (*theirs, "replaced"))
    assert {json.dumps(found[name]).replace('"', "") for name in own} <= {"23", "{list: [23]}"}


def test_a_directory_before_it_is_a_source_like_others(site):
    (site / "more").mkdir()
    (site / "more" / "hosts.yml").write_text(FILES["hosts.yml"])
    found = seen_by_a_task(site, ["mine", "gpu_1_text"], "more", "service.yml")
    assert str(found["mine"]) == "23" and "touch" in found["gpu_1_text"]


@pytest.mark.parametrize("fault", ["fails", "no key"])
def test_a_plugin_that_fails_or_whose_file_looks_like_one_of_hosts_leaves_no_template(site, fault):
    plugin = site / "plugins" / "service.py"
    if fault == "fails":
        plugin.write_text(plugin.read_text() + '        raise ValueError("page 2 is missing")\n')
    else:
        option = "plugin: {description: The name., required: true, choices: [service]}"
        plugin.write_text(plugin.read_text().replace(option, ""))
        (site / "service.yml").write_text("url: https://cmdb\n")
    (site / "hosts.yml").write_text(FILES["hosts.yml"])
    unparsed = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "false"}
    found = seen_by_a_task(site, ["mine", "gpu_1_text"], "hosts.yml", "service.yml", **unparsed)
    assert not (site / "harm").exists(), "a text from outside was evaluated"
    assert str(found["mine"]) == "23" and "touch" in found["gpu_1_text"]
