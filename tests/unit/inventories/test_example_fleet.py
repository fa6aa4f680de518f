# SPDX-License-Identifier: GPL-3.0-or-later
"""inventories/example-fleet: a table, the groups that follow from it, and what is served where."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
SOURCE = "inventories/example-fleet"


def run(command, *options):
    words = [str(Path(sys.executable).with_name(command)), *options]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")}
    done = subprocess.run(words, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_groups_follow_from_the_table():
    document = json.loads(run("ansible-inventory", "-i", SOURCE, "--list"))
    assert document["accel_cuda"]["children"] == ["accel_ada", "accel_hopper"]
    assert document["accel_hopper"]["children"] == ["accel_h200"]
    assert document["accel_h200"]["hosts"] == ["gpu-a-01", "gpu-a-02"]
    assert document["accel_ascend_a2"]["hosts"] == ["npu-a-01"]
    assert document["site_helsinki"]["children"] == ["cluster_hel1"]
    assert document["_meta"]["hostvars"]["gpu-b-01"]["accelerator_count"] == 4


def test_what_is_served_follows_from_the_groups(tmp_path):
    run("ansible-playbook", "-i", SOURCE, "playbooks/render.yml", "-e", f"render_dir={tmp_path}")
    plans = [json.loads(path.read_text()) for path in tmp_path.glob("*/*/plan.json")]
    served = {(plan["host"], plan["vllm_version"], plan["model"]) for plan in plans}
    hosts = {host for host, _version, _model in served}
    assert hosts == {"gpu-a-01", "gpu-a-02", "gpu-b-01", "amd-a-01", "amd-a-02", "npu-a-01", "cpu-a-01"}
    assert ("npu-a-01", "0.30.0") in {(host, version) for host, version, _model in served}
    assert {model for host, _version, model in served if host in ("gpu-b-01", "cpu-a-01")} == {"openai/gpt-oss-20b"}
