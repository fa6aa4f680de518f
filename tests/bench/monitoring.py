#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What monitoring.yml costs the controller, start of Ansible and its inventory included.

    targets  monitoring.yml for 10,000 hosts with two instances each; the goal is 5 s
    empty    a play without a task over the same inventory: what Ansible takes by itself

On a busy machine only the processor seconds mean anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
GATEWAYS, GOAL = 4, 5
ACCELERATORS = ("h100", "h200", "b200", "b300")
SHARED = {
    "vllm_release": "0.33.0",
    "vllm_instances": {
        "chat": {"recipe": "openai/gpt-oss-120b", "host": "0.0.0.0", "port": 8000, "replicas": 1},
        "quick": {"recipe": "openai/gpt-oss-20b", "host": "0.0.0.0", "port": 8010, "replicas": 1},
    },
}


def inventory(top: Path, hosts: int) -> Path:
    """Write an inventory with an address and an accelerator for each host, and return its path."""
    named = {
        f"gpu-{number:05}": {
            "ansible_host": f"10.{20 + number // 65536}.{number // 256 % 256}.{number % 256}",
            "accelerator": ACCELERATORS[number % len(ACCELERATORS)],
            "accelerator_count": 8,
        }
        for number in range(hosts)
    }
    gateways = {
        f"gw-{number}": {"ansible_host": f"10.9.0.{number + 1}", "gateway_stats_listen": "0.0.0.0"}
        for number in range(GATEWAYS)
    }
    children = {"inference": {"hosts": named, "vars": SHARED}, "gateways": {"hosts": gateways}}
    path = top / "hosts.json"
    path.write_text(json.dumps({"all": {"children": children}}, indent=1))
    return path


def measure(*words: str, status: int = 0) -> tuple[float, float]:
    """Run a playbook, which ends with a status; return its seconds, and those of the processor."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "ansible", "playbook", *words]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")}
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        sys.exit(f"{done.stdout[-3000:]}{done.stderr[-1000:]}\n{' '.join(words)} failed")
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000, help="hosts (default 10000)")
    hosts = parser.parse_args().hosts
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        path, play, target = str(inventory(top, hosts)), top / "empty.json", top / "monitoring"
        play.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": []}]))
        # The first run compiles what is not compiled yet.
        measure("-i", path, str(play))
        empty = measure("-i", path, str(play))
        targets = measure("-i", path, "playbooks/monitoring.yml", "-e", f"monitoring_dir={target}")
        lines = sum(line.startswith("{") for line in (target / "targets/vllm.json").read_text().splitlines())
        for name, (took, busy) in {"empty": empty, "targets": targets}.items():
            print(f"{name:9} {took:5.1f} s, {busy:5.1f} s of a processor, {hosts} hosts")
    if lines != 2 * hosts:
        sys.exit(f"vllm.json has {lines} targets, expected {2 * hosts}")
    if targets[1] > GOAL:
        sys.exit(f"monitoring.yml took more than {GOAL} s")


if __name__ == "__main__":
    main()
