#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What 64 instances over 8 hosts each cost the controller: seconds, and processor seconds, of what is decided there.

    plan      plans and checks of all hosts, as site.yml and rollout.yml begin
    gateways  which servers are one, as drain.yml and gateway_status.yml ask
    waves     the waves of a rollout that changes all of them

The goal is 10 s for each, start of Ansible included. On a busy machine only the processor seconds mean anything.
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
from typing import Any

TOP = Path(__file__).resolve().parents[2]
GOAL = 10
OPTIONS = {
    "canaries": 1, "waves": ["25%"], "order": "clusters", "max_failures": 0, "min_available": 1, "pause": 0,
    "confirm": False,
}  # fmt: skip


def host(number: int, rank: int, names: list[str], state_dir: str) -> dict[str, Any]:
    """Return the variables of a host, with what a rollout has read of it."""
    address = f"10.20.{number}.{rank + 1}"
    seen = {
        "changes": {"big": {"before": None, "after": {}, "args": {}, "env": {}, "files": []}},
        "words": "big: release 0.32.0 -> 0.33.0", "concerned": True, "interrupted": "", "instances": ["big"],
        "servers": [] if rank else ["big"], "installed": {"big": "one"}, "states": {"big": "one"}, "measures": [],
        "groups": {"big": {"hosts": names, "role": "worker" if rank else "head"}}, "unkept": [],
        "options": {**OPTIONS, "state_dir": state_dir},
    }  # fmt: skip
    place = {"ansible_host": address, "vllm_cluster_address": address, "vllm_cluster_interface": "bond1"}
    return {**place, "accelerator": "h200", "accelerator_count": 8, "__rollout_seen": seen}


def inventory(top: Path, groups: int, size: int) -> Path:
    """Write the inventory and return its path."""
    children: dict[str, Any] = {"gateways": {"hosts": {"gw": {}}}}
    hosts: dict[str, Any] = {}
    for number in range(groups):
        names = [f"gpu-{number:02}-{rank}" for rank in range(size)]
        big = {"recipe": "openai/gpt-oss-120b", "nodes": f"pod_{number}", "strategy": "multi_node_tp_pp",
               "host": "0.0.0.0", "port": 8000}  # fmt: skip
        children[f"pod_{number}"] = {"hosts": {name: {} for name in names}, "vars": {"vllm_instances": {"big": big}}}
        hosts.update({name: host(number, rank, names, str(top)) for rank, name in enumerate(names)})
    children["inference"] = {"hosts": hosts, "vars": {"vllm_cluster_network": "10.20.0.0/16"}}
    path = top / "hosts.json"
    path.write_text(json.dumps({"all": {"children": children}}))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=64, help="instances over several hosts (default 64)")
    parser.add_argument("--size", type=int, default=8, help="hosts of each (default 8)")
    options = parser.parse_args()
    everyone = "{{ groups.inference }}"
    tasks = {
        "plan": ("inference", {"baremetal.inference.declared_plans": {}}),
        "gateways": ("gw", {"baremetal.inference.gateways_info": {"hosts": everyone}}),
        "waves": ("localhost", {"baremetal.inference.rollout_plan": {"hosts": everyone}}),
    }
    slow = []
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        path = inventory(top, options.groups, options.size)
        for name, (hosts, task) in tasks.items():
            play = {"hosts": hosts, "gather_facts": False, "tasks": [{**task, "run_once": True}]}
            (top / "play.json").write_text(json.dumps([play]))
            began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-m", "ansible", "playbook", "-i", str(path), str(top / "play.json")]
            environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")}
            done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
            took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                sys.exit(f"{done.stdout}{done.stderr}\n{name} failed")
            busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"{name:9} {took:5.1f} s, {busy:5.1f} s of a processor, {options.groups * options.size} hosts")
            slow += [name] if busy > GOAL else []
    if slow:
        sys.exit(f"{', '.join(slow)} took more than {GOAL} s")


if __name__ == "__main__":
    main()
