# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/health.yml on this machine in check mode, before it writes anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
CHAT = {"chat": {"recipe": "baremetal/gpt-oss-smoke", "port": 8000}}


def run(site, **variables):
    own = {
        "ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False,
        "accelerator": "cpu", "accelerator_sysfs_root": str(site / "sys"), "vllm_release": "0.32.0",
        "vllm_instances": CHAT, **variables,
    }  # fmt: skip
    (site / "sys/bus/pci/devices").mkdir(parents=True, exist_ok=True)
    (site / "hosts.json").write_text(json.dumps({"inference": {"hosts": {"cpu-1": own}}}))
    command = [
        Path(sys.executable).with_name("ansible-playbook"),
        "-i",
        site / "hosts.json",
        TOP / "playbooks/health.yml",
        "--check",
        "-t",
        "always",
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.replace("''", "'")


def test_a_site_without_mistakes_passes(tmp_path):
    status, said = run(tmp_path)
    assert status == 0, said


@pytest.mark.parametrize(
    ("variables", "text", "message"),
    [
        ({"health_stal": 5}, "", "health_stal is not an option of the role health; nearest: 'health_stall'"),
        ({"health_stall": "soon"}, "", "health_stall"),
        ({}, "vendor: nvidia\nkinds: {xid: {faults: {'13': {action: isolate_host}}}}\n", "a program caused this fault"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(tmp_path, variables, text, message):
    if text:
        (tmp_path / "faults").mkdir()
        (tmp_path / "faults/nvidia.yml").write_text(text)
        variables = {**variables, "health_fault_path": [str(tmp_path / "faults")]}
    status, said = run(tmp_path, **variables)
    assert status and message in said, said
