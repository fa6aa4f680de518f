#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of site.yml costs: seconds and tasks, in total and per role, against two yardsticks of the same minutes.

A first run on fresh lab hosts, then runs with nothing to do, and beside each of those an empty play and a play of as
many no-op tasks over the same host. Machines differ and are noisy: the ratios are the result, not the seconds.

With --further, such runs over more hosts too. The hosts of a lab work on the controller's own processors, so the
seconds for each further host are given in two ways: as they pass, and as the controller's processor time. Their
addresses are plain there, as in a site's inventory; those of the lab are templates, which each task renders again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
HOST = "cpu-12"
FURTHER = ("cpu-12b", "cpu-12c")
# Seconds on a quiet machine, and for each further host.
GOAL, GOAL_FURTHER = 6.0, 0.5
# Tasks that never leave the controller.
LOCAL = (
    "ansible.builtin.assert",
    "ansible.builtin.debug",
    "ansible.builtin.include_role",
    "ansible.builtin.include_tasks",
    "ansible.builtin.validate_argument_spec",
    "baremetal.inference.serve_plan",
)
EMPTY = "- {name: Empty, hosts: %s, gather_facts: false, tasks: []}\n"
NOOP = "    - {name: No-op %d, ansible.builtin.file: {path: /etc, state: directory}}\n"


def processor_seconds() -> float:
    """Return the processor time that ended children of this process have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def play(playbook: str, directory: str, *options: str) -> tuple[float, list[dict]]:
    """Run a playbook; return its seconds and one record a task and host: role, action, seconds, changed."""
    log = Path(directory) / "tasks.jsonl"
    log.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "ANSIBLE_CALLBACK_PLUGINS": str(TOP / "tests" / "bench" / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "task_log",
        "TASK_LOG": str(log),
    }
    command = [str(TOP / ".venv/bin/ansible-playbook"), "-i", "inventories/lab", playbook, *options]
    started = time.monotonic()
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    records = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return seconds, [record for record in records if record["host"] == HOST]


def reaching(records: list[dict]) -> list[dict]:
    """Return the records of tasks that reached the host."""
    return [record for record in records if not record["skipped"] and record["action"] not in LOCAL]


def show(title: str, seconds: float, records: list[dict]) -> None:
    """Print one run: total, then per role."""
    print(f"\n{title}: {seconds:.1f} s, {len(reaching(records))} tasks reached {HOST}, "
          f"{sum(record['changed'] for record in records)} changed")  # fmt: skip
    roles: dict[str, list[dict]] = defaultdict(list)
    for record in reaching(records):
        roles[record["role"]].append(record)
    for role, tasks in sorted(roles.items()):
        print(f"  {role:14} {sum(task['seconds'] for task in tasks):7.1f} s  {len(tasks):3d} tasks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs with nothing to do (default 3)")
    parser.add_argument("--further", action="store_true", help=f"measure {', '.join(FURTHER)} too")
    parser.add_argument("--keep", action="store_true", help="use the lab that is up instead of a fresh one")
    options = parser.parse_args()
    os.environ.setdefault("LAB_NAME", "bench")
    os.environ.setdefault("LAB_SUBNET_PREFIX", "10.87.202")
    lab = [str(TOP / "bin/lab")]
    subprocess.run([str(TOP / "tools/lab/content.sh")], check=True, cwd=TOP)
    hosts = ("mirror", HOST, *(FURTHER if options.further else ()))
    subprocess.run([*lab, "up", *hosts], check=True, cwd=TOP)
    for host in hosts:
        # Servers compile a module at each call; the lab's hosts would not (tools/lab/image.sh).
        subprocess.run([*lab, "ssh", host, "rm -rf /run/lab-compiled"], check=True, cwd=TOP)
    try:
        with tempfile.TemporaryDirectory() as directory:
            measure(directory, options.runs)
            if options.further:
                measure_further(directory, options.runs)
    finally:
        if not options.keep:
            subprocess.run([*lab, "down"], check=True, cwd=TOP)


def measure(directory: str, runs: int) -> None:
    """Print the first run, then the runs with nothing to do beside their yardsticks."""
    show("First run", *play("site.yml", directory))
    tasks = len(reaching(play("site.yml", directory, "--limit", HOST)[1]))
    empty, noop = Path(directory) / "empty.yml", Path(directory) / "noop.yml"
    empty.write_text(EMPTY % HOST)
    noop.write_text(
        f"- name: No-op\n  hosts: {HOST}\n  gather_facts: false\n  tasks:\n" + "".join(NOOP % n for n in range(tasks))
    )
    rows = []
    while len(rows) < runs:
        seconds, records = play("site.yml", directory, "--limit", HOST)
        rows.append((seconds, play(str(empty), directory)[0], play(str(noop), directory)[0]))
        show("Nothing to do", seconds, records)
    site, bare, idle = (statistics.median(column) for column in zip(*rows))
    print(f"\nMedians of {runs}: site.yml {site:.1f} s, empty play {bare:.1f} s, {tasks} no-op tasks {idle:.1f} s")
    print(f"Ratios: site.yml / empty play {site / bare:.2f}, site.yml / as many no-op tasks {site / idle:.2f}")
    print(f"site.yml / goal of {GOAL:g} s: {site / GOAL:.2f} (goal at most 1.00)")


def connection(host: str) -> dict[str, str]:
    """Return the variables of the connection to a host of the lab, without templates."""
    home, name = os.environ.get("LAB_HOME", str(TOP / ".lab")), os.environ["LAB_NAME"]
    lab = json.loads(Path(home, name, "inventory.json").read_text())["lab"]
    return {**lab["vars"], **lab["hosts"][host], "ansible_control_path_dir": f"/run/bminf-{name}/ssh"}


def measure_further(directory: str, runs: int) -> None:
    """Print what each further host adds to a run with nothing to do."""
    everything = (HOST, *FURTHER)
    inventory = Path(directory) / "further.yml"
    inventory.write_text(json.dumps({"inference": {"hosts": {host: connection(host) for host in everything}}}))
    hosts = ["-i", str(inventory)]
    play("site.yml", directory, *hosts)
    rows = []
    while len(rows) < runs:
        row = []
        for options in ([*hosts, "--limit", HOST], [*hosts, "--limit", ":".join(everything)]):
            used = processor_seconds()
            row += [play("site.yml", directory, *options)[0], processor_seconds() - used]
        rows.append(row)
    one, one_cpu, all_of_them, all_cpu = (statistics.median(column) for column in zip(*rows))
    wall = (all_of_them - one) / len(FURTHER)
    processors = os.cpu_count() or 1
    controller = (all_cpu - one_cpu) / len(FURTHER) / processors
    print(f"\nMedians of {runs}: one host {one:.1f} s, {len(everything)} hosts {all_of_them:.1f} s")
    print(
        f"Each further host: {wall:.2f} s with its own work on these processors, {controller:.2f} s of the controller's"
    )
    print(f"The controller's share / goal of {GOAL_FURTHER:g} s: {controller / GOAL_FURTHER:.2f} (goal at most 1.00)")


if __name__ == "__main__":
    main()
