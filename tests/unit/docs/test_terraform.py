# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples of docs/operate/terraform.md.

Terraform, the collection cloud.terraform and cloud-init are on no Python index: a command that needs one of them is run
where it is installed. What this collection does with the hosts is tested everywhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).resolve().parents[3]
PAGE = (TOP / "docs/operate/terraform.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^`([^`\n]+)`:\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
FLEET, STATE, CLOUD_INIT = SECTIONS.values()
# cloud.terraform as the variable names it, or where Ansible finds collections.
COLLECTIONS = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or str(Path.home() / ".ansible/collections")


def write_files(section, top):
    for name, kind, text in BLOCK.findall(section):
        if kind != "console":
            (top / name).write_text(text, encoding="utf-8")


def commands(section):
    """Return each command with the text that it has to print."""
    (console,) = (text for _name, kind, text in BLOCK.findall(section) if kind == "console")
    found = [part.partition("\n") for part in console.removeprefix("$ ").split("\n$ ")]
    return [(command, wanted.strip()) for command, _newline, wanted in found]


def run(command, top, **more):
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": f"{TOP / '.collections'}:{COLLECTIONS}",
        "ANSIBLE_CONFIG": str(top / "ansible.cfg"),
        "HOME": str(top),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TF_CLI_CONFIG_FILE": "",
        "CHECKPOINT_DISABLE": "1",
        **more,
    }
    (top / "ansible.cfg").write_text("[inventory]\nany_unparsed_is_failed = true\n")
    done = subprocess.run(
        ["bash", "-ec", command], cwd=top, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def fleet_of(text):
    """Return what the output of fleet.tf is, from its variable: the lines of its servers."""
    servers = re.findall(
        r'(\S+) += \{ address = "(\S+)", accelerator = "(\w+)", count = (\d+), cluster = "(\w+)" \}', text
    )
    return {
        name: {"ansible_host": address, "accelerator": model, "accelerator_count": int(count), "cluster": cluster}
        for name, address, model, count, cluster in servers
    }


def test_a_fleet_file_as_terraform_writes_it(tmp_path):
    write_files(FLEET, tmp_path)
    hosts = fleet_of(FLEET)
    assert len(hosts) == 2
    (tmp_path / "fleet.json").write_text(json.dumps({"hosts": hosts}))
    command, wanted = commands(FLEET)[-1]
    assert run(command, tmp_path) == wanted
    listed = json.loads(run("ansible-inventory -i accelerators.yml --list", tmp_path))
    assert listed["inference"]["hosts"] == list(hosts)


@pytest.mark.skipif(not shutil.which("terraform"), reason="terraform is not installed")
def test_terraform_writes_it(tmp_path):
    write_files(FLEET, tmp_path)
    for command, wanted in commands(FLEET):
        assert run(command, tmp_path) == wanted
    hosts = json.loads((tmp_path / "fleet.json").read_text())["hosts"]
    assert hosts == {name: {**entry, "ansible_user": "ops"} for name, entry in fleet_of(FLEET).items()}


def state_of(text):
    """Return what `terraform show -json` shows of main.tf: the provider's variables are texts."""
    variables = dict(re.findall(r'^    (\w+) += "?(\w+)"?$', text, re.MULTILINE))
    resources = []
    for name, address in re.findall(r'^    (\S+) = "([\d.]+)"$', text, re.MULTILINE):
        values = {
            "name": name,
            "id": name,
            "groups": ["inference"],
            "variables": {**variables, "ansible_host": address},
        }
        resources.append(
            {"address": f'ansible_host.gpu["{name}"]', "mode": "managed", "type": "ansible_host", "name": "gpu",
             "index": name, "provider_name": "registry.terraform.io/ansible/ansible", "schema_version": 0,
             "values": values, "sensitive_values": {}}
        )  # fmt: skip
    return {"format_version": "1.0", "terraform_version": "1.11.4", "values": {"root_module": {"resources": resources}}}


def test_hosts_as_cloud_terraform_adds_them(tmp_path):
    """Every variable is a text, also the number of chips."""
    write_files(STATE, tmp_path)
    resources = state_of(STATE)["values"]["root_module"]["resources"]
    hosts = {entry["index"]: entry["values"]["variables"] for entry in resources}
    assert [host["accelerator_count"] for host in hosts.values()] == ["8", "8"]
    (tmp_path / "terraform.yml").write_text(yaml.safe_dump({"inference": {"hosts": hosts}}))
    command, wanted = commands(STATE)[0]
    assert run(command, tmp_path) == wanted


@pytest.mark.skipif(
    not (Path(COLLECTIONS) / "ansible_collections/cloud/terraform").is_dir(), reason="cloud.terraform is not installed"
)
def test_cloud_terraform_adds_them(tmp_path):
    """The real plugin; in place of Terraform with the provider, a program that shows the state."""
    write_files(STATE, tmp_path)
    (tmp_path / "state.json").write_text(json.dumps(state_of(STATE)))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/terraform"
    program.write_text(f'#!/bin/sh\n[ "$*" = "show -json" ] && cat {tmp_path}/state.json\n')
    program.chmod(0o755)
    command, wanted = commands(STATE)[0]
    path = f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert run(command, tmp_path, PATH=path) == wanted


def test_cloud_init_makes_a_host_that_ansible_reaches(tmp_path):
    write_files(CLOUD_INIT, tmp_path)
    text = (tmp_path / "user-data").read_text()
    assert text.startswith("#cloud-config\n")
    (user,) = yaml.safe_load(text)["users"]
    assert user["ssh_authorized_keys"] and user["sudo"].endswith("NOPASSWD:ALL")
    assert f'ansible_user      = "{user["name"]}"' in FLEET and f'ansible_user      = "{user["name"]}"' in STATE
    assert "python3" in yaml.safe_load(text)["packages"]


@pytest.mark.skipif(not shutil.which("cloud-init"), reason="cloud-init is not installed")
def test_cloud_init_accepts_it(tmp_path):
    write_files(CLOUD_INIT, tmp_path)
    ((command, wanted),) = commands(CLOUD_INIT)
    assert run(command, tmp_path) == wanted
