# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/monitoring.yml on this machine; no host is connected to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
CHAT = {"chat": {"recipe": "baremetal/gpt-oss-smoke", "host": "0.0.0.0", "port": 8000, "scale": {"max": 2}}}


@pytest.fixture
def site(tmp_path):
    """An inventory of two hosts and a gateway."""
    serving = {"accelerator": "cpu", "vllm_release": "0.32.0", "vllm_instances": CHAT}
    hosts = {f"cpu-{number}": {**serving, "ansible_host": f"10.0.0.{number}"} for number in (1, 2)}
    groups = {
        "inference": {"hosts": hosts},
        "cluster_a": {"hosts": {"cpu-1": {}}},
        "mirrors": {
            "hosts": {
                "depot": {
                    "site_monitoring": True,
                    "monitoring_node_listen": "{{ ansible_host }}",
                    "ansible_host": "10.0.0.8",
                },
                "other": {},
            }
        },
        "gateways": {
            "hosts": {
                "gw": {"ansible_host": "10.0.0.9", "gateway_stats_listen": "0.0.0.0", "gateway_admission": "auto"}
            }
        },
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    return tmp_path


def run(site, *words):
    command = [
        Path(sys.executable).with_name("ansible-playbook"),
        "-i",
        site / "hosts.json",
        TOP / "playbooks/monitoring.yml",
        *words,
    ]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0"}
    return subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)


def test_the_files_are_written_once(site):
    target = site / "monitoring"
    first = run(site, "-e", f"monitoring_dir={target}")
    assert first.returncode == 0, first.stdout
    (one, two) = json.loads((target / "targets/vllm.json").read_text())
    assert one["targets"] == ["10.0.0.1:8000"] and one["labels"]["cluster"] == "a" and one["labels"]["host"] == "cpu-1"
    assert "cluster" not in two["labels"]
    assert json.loads((target / "targets/haproxy.json").read_text())[0]["targets"] == ["10.0.0.9:8404"]
    assert json.loads((target / "targets/usage.json").read_text()) == []
    (admission,) = json.loads((target / "targets/admission.json").read_text())
    assert admission["targets"] == ["10.0.0.9:8404"]
    (scale,) = json.loads((target / "targets/scale.json").read_text())
    assert scale["targets"] == ["10.0.0.9:8404"]
    assert (target / "rules/inference.yml").read_text() == (
        TOP / "playbooks/files/monitoring/rules/inference.yml"
    ).read_text()
    nodes = {
        entry["labels"]["host"]: entry["targets"] for entry in json.loads((target / "targets/node.json").read_text())
    }
    assert nodes == {"depot": ["10.0.0.8:9100"], "cpu-1": ["10.0.0.1:9100"], "cpu-2": ["10.0.0.2:9100"]}
    again = run(site, "-e", f"monitoring_dir={target}")
    assert "changed=0" in again.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "monitoring_dir: found '', expected an absolute path"),
        (("-e", "monitoring_dir=here"), "monitoring_dir: found 'here', expected an absolute path"),
        (("-e", "monitoring_dirr=/srv/x"), "nearest: 'monitoring_dir'"),
    ],
)
def test_a_wrong_directory_is_refused(site, words, message):
    done = run(site, *words)
    assert done.returncode and message in done.stdout.replace("''", "'")
