# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml and rollout.yml find a mistake of the inventory before they contact a host; here no host could be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
HOST = {
    "accelerator": "h200",
    "accelerator_count": 8,
    "vllm_release": "0.33.0",
    "vllm_instances": {"chat": {"recipe": "openai/gpt-oss-120b"}},
}


def run(directory, playbook, **variables):
    """Run a playbook on two hosts; return its exit status, what it says, and whether a host was contacted."""
    ssh = directory / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    variables = {**HOST, "ansible_ssh_executable": str(ssh), **variables}
    hosts = {"all": {"children": {"inference": {"hosts": {"gpu-1": {}, "gpu-2": {}}, "vars": variables}}}}
    (directory / "hosts.json").write_text(json.dumps(hosts))
    given = {"rollout_state_dir": str(directory)}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", f"playbooks/{playbook}.yml", "-i", str(directory / "hosts.json"),
         "-e", json.dumps(given)],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
             "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        check=False,
        capture_output=True,
        text=True,
    )  # fmt: skip
    said = re.sub(r"\s+", " ", done.stdout + done.stderr)
    return done.returncode, said, "Compare the hardware with the inventory" in said


@pytest.mark.parametrize("playbook", ["site", "rollout"])
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"vllm_secrets": {"chta": {"VLLM_API_KEY": "a"}}}, "vllm_secrets.chta: no host has an instance 'chta'"),
        ({"vllm_verfy": False}, "vllm_verfy is not an option of the role vllm; nearest: 'vllm_verify'"),
    ],
    ids=["secret", "option"],
)
def test_no_host_is_contacted(tmp_path, playbook, variables, words):
    rc, said, contacted = run(tmp_path, playbook, **variables)
    assert rc != 0 and f"gpu-1, gpu-2: {words}" in said, said
    assert not contacted, said


def test_a_rollout_that_reaches_no_host_says_so(tmp_path):
    rc, said, contacted = run(tmp_path, "rollout")
    assert rc != 0 and contacted, said
    assert "nothing was changed: none of 2 hosts could be checked (gpu-1, gpu-2)" in said, said
