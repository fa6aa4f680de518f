#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What render.yml costs: seconds for 100 and for 1,000 hosts with two instances each, and against an ordinary play.

The ordinary play gets the finished plans for nothing and has one template task for each file, over some of the same
hosts, with connections to the controller itself. Machines differ and are noisy: the ratios are the result, not the
seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / ".collections"))

from ansible_collections.baremetal.inference.plugins.module_utils.vllm.files import instance_files

ACCELERATORS = ("h100", "h200", "b200", "b300")
SHARED = {
    "vllm_release": "0.33.0",
    "vllm_instances": {
        "chat": {"recipe": "openai/gpt-oss-120b", "preset": "balanced", "port": 8000, "replicas": 1},
        "quick": {"recipe": "openai/gpt-oss-20b", "port": 8010, "replicas": 1},
    },
}
TASK = """
    - name: Write %(template)s
      ansible.builtin.template:
        src: "%(templates)s/%(template)s"
        dest: "{{ out }}/{{ inventory_hostname }}/{{ item.name }}.%(template)s"
        mode: "0644"
      loop: "{{ plans | dict2items(key_name='name', value_name='plan') | map('combine', {'start_seconds': 0}) }}"
"""
PLAY = """
- name: Render with tasks
  hosts: all
  connection: local
  gather_facts: false
  vars_files: ["%(role)s/defaults/main.yml", "%(role)s/vars/main.yml"]
  vars:
    out: "%(top)s/tasks"
    name: "{{ item.name }}"
    plan: "{{ item.plan }}"
    __vllm_container: {user: vllm, engine: docker, stop_timeout: 80}
    plans:
      chat: "{{ lookup('file', '%(top)s/out-%(hosts)s/' ~ inventory_hostname ~ '/chat/plan.json') | from_json }}"
      quick: "{{ lookup('file', '%(top)s/out-%(hosts)s/' ~ inventory_hostname ~ '/quick/plan.json') | from_json }}"
  tasks:
    - name: Make the directory
      ansible.builtin.file:
        path: "{{ out }}/{{ inventory_hostname }}"
        state: directory
        mode: "0755"
"""


def inventory(top: Path, hosts: int) -> Path:
    """Write an inventory whose hosts have four kinds of accelerators, and return its path."""
    named = {
        f"node-{number:04}": {"accelerator": ACCELERATORS[number % len(ACCELERATORS)], "accelerator_count": 8}
        for number in range(hosts)
    }
    path = top / f"hosts-{hosts}.yml"
    # JSON is YAML, and needs no library here.
    path.write_text(json.dumps({"inference": {"hosts": named, "vars": SHARED}}, indent=1))
    return path


def seconds(*options: str) -> float:
    """Run a playbook; return its seconds, with the start of ansible-playbook and the reading of the inventory."""
    command = [str(TOP / ".venv/bin/ansible-playbook"), *options]
    started = time.monotonic()
    done = subprocess.run(command, cwd=TOP, env=os.environ, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return time.monotonic() - started


def render(top: Path, hosts: int, run: int) -> tuple[float, float, float]:
    """Return the seconds of a first rendering, of the processor in it, and of one that finds nothing to do."""
    # The plans of the first run are what the ordinary play starts from.
    out = top / (f"out-{hosts}" if run == 0 else f"out-{hosts}-{run}")
    command = ("-i", str(inventory(top, hosts)), "playbooks/render.yml", "-e", f"render_dir={out}")
    before = os.times()
    first = seconds(*command)
    after = os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return first, processor, seconds(*command)


def ordinary_play(top: Path, hosts: int) -> tuple[Path, int]:
    """Write a play with a task for each template of the plans of so many hosts; return its path and its tasks."""
    plan = json.loads((top / f"out-{hosts}/node-0000/chat/plan.json").read_text())
    files = instance_files(plan, {"user": "vllm", "engine": "docker"})
    used = [entry["template"] for entry in files if not entry["secret"]]
    path, templates = top / "tasks.yml", TOP / "roles/vllm/templates"
    tasks = "".join(TASK % {"template": name, "templates": templates} for name in used)
    path.write_text(PLAY % {"top": top, "hosts": hosts, "role": TOP / "roles/vllm"} + tasks)
    return path, len(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each size (default 3); the median counts")
    parser.add_argument("--hosts", type=int, nargs=2, default=(100, 1000), help="both sizes (default 100 1000)")
    parser.add_argument("--few", type=int, default=20, help="hosts of the ordinary play, which is long (default 20)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(Path(directory), options.runs, options.hosts, options.few)


def measure(top: Path, runs: int, sizes: Sequence[int], few: int) -> None:
    """Print the medians for either size, of the ordinary play, and the ratios between them."""
    median, processor = {}, {}
    for hosts in sizes:
        rows = [render(top, hosts, run) for run in range(runs)]
        first, processor[hosts], again = (statistics.median(column) for column in zip(*rows))
        median[hosts] = first
        print(f"render.yml, {hosts} hosts x 2 instances: {first:.1f} s first ({processor[hosts]:.1f} s of the "
              f"processor), {again:.1f} s with nothing to do")  # fmt: skip
    small, large = sizes
    play, tasks = ordinary_play(top, small)
    start = seconds("-i", str(inventory(top, few)), str(play), "--tags", "nothing")
    ordinary = seconds("-i", str(inventory(top, few)), str(play)) - start
    own = (median[large] - median[small]) / (large - small)
    print(f"An ordinary play, {tasks} template tasks, {few} hosts: {ordinary:.1f} s after {start:.1f} s of start")
    print(f"Ratio {large} / {small} hosts: {median[large] / median[small]:.1f}, of the processor's time "
          f"{processor[large] / processor[small]:.1f}")  # fmt: skip
    print(f"Each further host: {1000 * own:.1f} ms; in the ordinary play {1000 * ordinary / few:.0f} ms, "
          f"{ordinary / few / own:.0f} times as long")  # fmt: skip
    print(f"So {large} hosts of it would be {large * ordinary / few:.0f} s (not run)")


if __name__ == "__main__":
    main()
