# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a request is found on the controller: no connection to a host is opened before."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]


def run(directory, playbook, options, *words):
    """Run a playbook over hosts that cannot be reached; return status, output and whether a host was contacted."""
    ssh = directory / "ssh"
    ssh.write_text(f"#!/bin/sh\ntouch {directory}/contacted\nexit 255\n")
    ssh.chmod(0o755)
    groups = {group: {"hosts": {f"{group}-1": {}}} for group in ("inference", "gateways", "mirrors")}
    # Without a declared accelerator nothing is planned before a host is contacted.
    variables = {"ansible_ssh_executable": str(ssh), **options}
    (directory / "hosts.json").write_text(json.dumps({"all": {"children": groups, "vars": variables}}))
    given = {"rollout_state_dir": str(directory), "evaluate_dir": str(directory / "results")}
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", f"playbooks/{playbook}.yml", "-i", str(directory / "hosts.json"),
         "-e", json.dumps(given), *words],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
             "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"},
        check=False,
        capture_output=True,
        text=True,
    )  # fmt: skip
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr), (directory / "contacted").exists()


LIMITED = ("-l", "inference-1")
REFUSED = [
    ("site", {"weights_sources": [{"a": 1}]}, (), "weights_sources: found a mapping with a, expected a text or a"),
    ("rollout", {"rollout_waves": ["²"]}, (), "rollout_waves[0]: found '²', expected a number of hosts above 0"),
    ("rollout", {"rollout_measure": {"streams": 0}}, (), "rollout_measure: has streams 0, expected a whole number"),
    ("gateway", {"gateway_backends": {"x": 1}}, (), "gateway_backends: found a mapping, expected a list of texts"),
    ("site", {"mirror_port": {"x": 1}}, (), "mirror_port: found a mapping, expected a whole number"),
    ("bench", {"bench_workloads": ["chta"]}, LIMITED, "bench_workloads: 'chta' is not a workload; nearest: 'chat'"),
    ("bench", {"bench_concurrency": ["²"]}, LIMITED, "bench_concurrency: found '²', expected whole numbers"),
    ("bench", {"bench_compare": "/nowhere"}, LIMITED, "bench_compare: /nowhere is not there, expected a directory"),
    ("evaluate", {"evaluate_tasks": ["mad"]}, LIMITED, "evaluate_tasks: no task 'mad'; nearest: 'made'"),
    ("evaluate", {"evaluate_tasks": "made", "evaluate_compare": "/nowhere"}, LIMITED, "/nowhere is not a directory"),
    ("evaluate", {"evaluate_tasks": "made", "evaluate_data": {"mad": {}}}, LIMITED, "evaluate_data: no task 'mad'"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("playbook", "options", "words", "message"),
    REFUSED,
    ids=[f"{playbook}-{next(reversed(options))}" for playbook, options, _words, _message in REFUSED],
)
def test_no_host_is_contacted(tmp_path, playbook, options, words, message):
    rc, output, contacted = run(tmp_path, playbook, options, *words)
    assert rc != 0 and message in output, output
    assert not contacted, output
    assert "_Ansible" not in output


@pytest.mark.slow
def test_a_host_is_contacted_where_nothing_is_wrong(tmp_path):
    assert run(tmp_path, "evaluate", {"evaluate_tasks": "made"}, *LIMITED)[2]
