# SPDX-License-Identifier: GPL-3.0-or-later
"""A limit would cut off the controller and the gateways; a job template of AWX may have one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
INVENTORY = """
all:
  vars: {ansible_connection: local}
  children:
    inference: {hosts: {gpu-1: {}}}
    gateways: {hosts: {gw-1: {}}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["rollout", "rollback"])
@pytest.mark.parametrize("limit", ["gpu-1", "gateways"])
def test_a_limit_is_refused_whichever_hosts_it_names(tmp_path, playbook, limit):
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(tmp_path / "hosts.yml"), "--limit", limit]
    done = subprocess.run(
        [*command, f"playbooks/{playbook}.yml"], check=False, cwd=TOP, capture_output=True, text=True, timeout=120
    )
    told = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert f"--limit {limit} would cut the controller off from its own run; name the hosts with -e target_hosts" in told
    assert "PLAY [Plan" not in done.stdout and "PLAY [Check" not in done.stdout
