# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The action as a playbook runs it, on hosts whose commands answer as docker's do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.container_runtimes import system, write_engine

ROOT = Path(__file__).parents[4]
PLAYBOOK = """
- hosts: all
  gather_facts: false
  environment:
    PATH: "{{ tree }}:/usr/bin:/bin"
    FAKE: "{{ tree }}"
  tasks:
    - block:
        - baremetal.inference.container_runtime:
            system: "{{ system }}"
            source: distro
            registry_mirrors: "{{ mirrors | default([]) }}"
            storage: "{{ storage | default('') }}"
            restart_allowed: "{{ allowed | default(false) }}"
          register: planned
      rescue:
        - ansible.builtin.set_fact:
            failure: "{{ ansible_failed_result.msg }}"
    - ansible.builtin.copy:
        content: "{{ {'failure': failure | default(none), 'planned': planned | default(none)} | to_json }}"
        dest: "{{ tree }}/result.json"
        mode: "0600"
      check_mode: false
"""
MOVED = {"storage": "/data/docker"}
# Of each host: the names of its containers, and the options of its inventory.
HOSTS = {
    "settled": ("", {}),
    "mirror": ("", {"mirrors": ["mirror:5000"]}),
    "running": ("vllm-chat\nregistry\n", MOVED),
    "allowed": ("vllm-chat\nregistry\n", {**MOVED, "allowed": True}),
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Plan for all hosts in one run; return the result of each."""
    root = tmp_path_factory.mktemp("fleet")
    hosts = {}
    for name, (containers, variables) in HOSTS.items():
        tree = root / name
        tree.mkdir()
        write_engine(tree)
        (tree / "names").write_text(containers)
        hosts[name] = {**variables, "tree": str(tree)}
    given = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "system": system("Debian_13"),
    }
    (root / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": given}}))
    (root / "play.yml").write_text(PLAYBOOK)
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
        "ANSIBLE_NOCOLOR": "1",
    }
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [program, "-i", root / "hosts.json", "--check", root / "play.yml"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: json.loads((root / name / "result.json").read_text()) for name in HOSTS}


def test_a_host_that_matches_the_request_needs_nothing(fleet):
    planned = fleet["settled"]["planned"]
    assert (planned["changes"], planned["installs"], planned["changed"]) == (False, False, False)


def test_a_plan_is_plain_data(fleet):
    plan = fleet["mirror"]["planned"]["plan"]
    assert plan["reload"] == ["registry-mirrors"]
    assert json.loads(plan["files"][0]["content"])["registry-mirrors"] == ["https://mirror:5000"]
    assert plan["files"][0]["validate"] == "dockerd --validate --config-file=%s"


def test_containers_that_a_restart_would_stop_are_named_with_the_host(fleet):
    assert fleet["running"]["failure"] == (
        "running: docker must be restarted (data-root /var/lib/docker -> /data/docker), which stops its "
        "containers: registry, vllm-chat; stop them first, or set container_runtime_restart_allowed: true"
    )
    assert fleet["allowed"]["planned"]["plan"]["restart"] == ["data-root /var/lib/docker -> /data/docker"]
