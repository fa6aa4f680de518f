# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup as a user's run meets it: in the defaults of roles, and in the inventory plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.baremetal.inference.plugins.lookup.state_dir import LookupModule

TOP = Path(__file__).resolve().parents[4]
# What each default of a role or playbook gives, in one run.
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_vars: {file: ROOT/roles/rollout/defaults/main.yml}
    - ansible.builtin.include_vars: {file: ROOT/roles/gateway/defaults/main.yml}
    - ansible.builtin.include_vars: {file: ROOT/playbooks/vars/tune.yml}
    - ansible.builtin.copy:
        content: "{{ [rollout_state_dir, gateway_ca_dir, __tune_dir, accelerator_discovery_cache] | to_json }}"
        dest: "{{ found }}"
        mode: "0600"
"""


def test_the_lookup_reads_the_environment(monkeypatch):
    monkeypatch.setenv("BAREMETAL_STATE_DIR", "/state")
    assert LookupModule().run(["rollouts", "tune-results"]) == ["/state/rollouts", "/state/tune-results"]
    monkeypatch.setenv("BAREMETAL_STATE_DIR", "state")
    with pytest.raises(AnsibleError, match="BAREMETAL_STATE_DIR: found 'state', expected an absolute path"):
        LookupModule().run(["rollouts"])


@pytest.mark.slow
def test_a_run_writes_below_the_one_directory(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site/hosts.yml").write_text("all: {hosts: {localhost: {}}}\n")
    (tmp_path / "site/accelerators.yml").write_text("plugin: baremetal.inference.accelerators\n")
    (tmp_path / "play.yml").write_text(PLAY.replace("ROOT", str(TOP)))
    found = tmp_path / "found.json"
    command = [
        sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "site/hosts.yml"), "-i",
        str(tmp_path / "site/accelerators.yml"), str(tmp_path / "play.yml"), "-e", f"found={found}",
    ]  # fmt: skip
    environment = {**os.environ, "BAREMETAL_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(command, check=False, cwd=TOP, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    rollouts, authority, tune, discovery = json.loads(found.read_text())
    state = f"{tmp_path}/state"
    assert [rollouts, authority, tune] == [f"{state}/rollouts", f"{state}/gateway-ca", f"{state}/tune-results"]
    assert discovery.startswith(f"{state}/discovery/site-") and discovery.endswith(".json")
