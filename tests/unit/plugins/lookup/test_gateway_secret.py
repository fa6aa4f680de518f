# SPDX-License-Identifier: GPL-3.0-or-later
"""The secret as both roles read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleError
from ansible_collections.baremetal.inference.plugins.lookup.gateway_secret import LookupModule
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import digest_of

TOP = Path(__file__).resolve().parents[4]
PLAY = """
- hosts: a, b
  connection: local
  gather_facts: false
  vars:
    item: {name: chat-1, plan: {replica_of: chat}}
    gateway_tls: off
    gateway_tokens: true
    __gateway_plan: {services: [{name: chat, servers: [{name: a--chat-1}, {name: b--chat-1}]}]}
  tasks:
    - ansible.builtin.include_vars: {file: ROOT/roles/vllm/vars/main.yml}
    - ansible.builtin.include_vars: {file: ROOT/roles/gateway/defaults/main.yml}
    - ansible.builtin.include_vars: {file: ROOT/roles/gateway/vars/main.yml}
    - ansible.builtin.template:
        src: ROOT/roles/vllm/templates/instance.secrets.j2
        dest: "{{ found }}/{{ inventory_hostname }}.secrets"
        mode: "0600"
      diff: false
    - ansible.builtin.copy:
        content: "{{ lookup('baremetal.inference.gateway_secret', gateway_secret, gateway=__gateway_plan) }}"
        dest: "{{ found }}/{{ inventory_hostname }}.gateway"
        mode: "0600"
      diff: false
"""


@pytest.mark.parametrize("check", [True, False])
def test_check_mode_makes_no_file(monkeypatch, tmp_path, check):
    monkeypatch.setenv("BAREMETAL_STATE_DIR", str(tmp_path))
    (found,) = LookupModule().run([""], {"ansible_check_mode": check})
    assert len(found) == 64 and os.listdir(tmp_path) == ([] if check else ["gateway-secret"])


def test_errors_name_the_place(monkeypatch, tmp_path):
    monkeypatch.setenv("BAREMETAL_STATE_DIR", "state")
    with pytest.raises(AnsibleError, match="BAREMETAL_STATE_DIR: found 'state', expected an absolute path"):
        LookupModule().run([""], {})
    (tmp_path / "file").touch()
    monkeypatch.setenv("BAREMETAL_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(AnsibleError, match="BAREMETAL_STATE_DIR: the file gateway-secret below it: File exists"):
        LookupModule().run([""], {})


@pytest.mark.parametrize("name", ["file", "ansible.builtin.file", "unvault"])
def test_an_emptied_file_is_no_site_without_a_secret(monkeypatch, name):
    monkeypatch.delenv("BAREMETAL_STATE_DIR", raising=False)
    written = f"{{{{ lookup('{name}', inventory_dir ~ '/.keys/gateway.secret') }}}}"
    with pytest.raises(AnsibleError, match="gateway_secret: the file that it names is empty; write one line of"):
        LookupModule().run([""], {"gateway_secret": written})
    assert LookupModule().run(["a" * 32], {"gateway_secret": written}) == ["a" * 32]
    for other in ("", "{{ vault_secret | default('') }}", written.replace(" }}", " | default('') }}")):
        assert LookupModule().run([""], {"gateway_secret": other}) == [""]


def test_hosts_get_keys_of_their_own_and_no_host_or_output_has_the_secret(tmp_path):
    (tmp_path / "play.yml").write_text(PLAY.replace("ROOT", str(TOP)))
    command = [
        sys.executable, "-m", "ansible", "playbook", "-i", "a,b,", str(tmp_path / "play.yml"), "-vvv", "--diff",
        "-e", f"found={tmp_path}", "-e", '{"vllm_secrets": {"chat": {"HF_TOKEN": "token"}}}',
    ]  # fmt: skip
    environment = {**os.environ, "BAREMETAL_STATE_DIR": str(tmp_path / "state")}
    done = subprocess.run(command, check=False, cwd=TOP, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    secret = (tmp_path / "state/gateway-secret").read_text().strip()
    for host in ("a", "b"):
        keys = dict(line.split() for line in (tmp_path / f"{host}.gateway").read_text().splitlines())
        assert list(keys) == ["service:chat", "instance:a--chat-1", "instance:b--chat-1"]
        *_head, gateways, token = (tmp_path / f"{host}.secrets").read_text().splitlines()
        mine = [f"{name.partition(':')[0]}:{keys[name]}" for name in ("service:chat", f"instance:{host}--chat-1")]
        assert gateways == f'GATEWAY_SECRET="{" ".join([*mine, f"sha256:{digest_of(secret)}"])}"'
        assert token == "HF_TOKEN=token"
        assert all(secret not in (tmp_path / f"{host}.{kind}").read_text() for kind in ("gateway", "secrets"))
    assert not any(text in done.stdout + done.stderr for text in (secret, *keys.values()))
