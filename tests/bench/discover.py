#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a discovery costs per host, beside gathering facts of the same hosts in the same minutes.

Lab hosts (systemd, SSH) are asked all at once, 50 at a time, each run with SSH connections of its own. Controller and
hosts share one machine, and machines differ: the ratio is the result, not the seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))

from tools.lab import __main__ as lab_tool
from tools.lab.plan import Host, Lab, LabError, parse_lab

FORKS = 50
# Hosts that are made at a time: more would boot so slowly that systemd gives up on its own services.
BATCH = 10
# Every systemd watches files with several instances of inotify, and the kernel gives one user 128 of them.
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INSTANCES = 8192
PLAY = "- {name: Play, hosts: all, gather_facts: %s, tasks: []}\n"


def lab_hosts(count: int) -> dict[str, Host]:
    return {f"disc-{number:03}": Host(f"disc-{number:03}", number + 10, "bookworm") for number in range(count)}


def bring_up(lab: Lab, hosts: dict[str, Host]) -> Path:
    """Have the hosts running; return an inventory of them in plain text."""
    inventory = {"lab": {"children": {"discovered": {"hosts": dict.fromkeys(hosts)}}}}
    chosen = list(hosts.values())
    for first in range(0, len(chosen), BATCH):
        lab_tool.up(lab, inventory, hosts, chosen[first : first + BATCH])
    listed = lab_tool.plain_inventory(inventory, lab, chosen)
    listed["lab"]["vars"] = {**listed["lab"]["vars"], "accelerator_sysfs_root": "/usr/share/lab/sys"}
    path = lab.directory / "inventory.json"
    path.write_text(json.dumps(listed))
    return path


@contextlib.contextmanager
def many_watches() -> Iterator[None]:
    """Raise the kernel's limit while the hosts run."""
    before = INOTIFY.read_text()
    INOTIFY.write_text(str(max(INSTANCES, int(before))))
    try:
        yield
    finally:
        INOTIFY.write_text(before)


def play(inventory: Path, playbook: str, *options: str) -> tuple[float, float, str]:
    """Run a playbook over new connections; return its seconds, the controller's processor seconds and its output."""
    with tempfile.TemporaryDirectory(prefix="cp", dir="/run") as sockets:
        environment = {**os.environ, "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets, "ANSIBLE_NOCOLOR": "1"}
        command = [
            str(TOP / ".venv/bin/ansible-playbook"),
            "-i",
            str(inventory),
            f"--forks={FORKS}",
            playbook,
            *options,
        ]
        before, started = processor_seconds(), time.monotonic()
        done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
        seconds, processor = time.monotonic() - started, processor_seconds() - before
        for socket in Path(sockets).iterdir():
            subprocess.run(["ssh", "-F", "none", "-O", "exit", "-S", socket, "lab"], check=False, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return seconds, processor, done.stdout


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(inventory: Path, count: int, runs: int, directory: str) -> None:
    """Print the cost per host of both, each less that of a play that asks nothing."""
    empty, facts = Path(directory) / "empty.yml", Path(directory) / "facts.yml"
    empty.write_text(PLAY % "false")
    facts.write_text(PLAY % "true")
    cache = Path(directory) / "cache.json"
    rows = []
    for number in range(runs):
        idle = play(inventory, str(empty))
        probe = play(inventory, "playbooks/discover.yml", "-e", f"discover_cache={cache}")
        gather = play(inventory, str(facts))
        if f"{count} of {count} hosts answered" not in probe[2]:
            sys.exit(f"not all hosts answered:\n{probe[2]}")
        rows.append([idle[0], probe[0], gather[0], idle[1], probe[1], gather[1]])
        print(
            f"run {number + 1}: empty play {idle[0]:.1f} s, discover {probe[0]:.1f} s, gather_facts {gather[0]:.1f} s"
        )
    idle, probe, gather, *processor = (statistics.median(column) for column in zip(*rows))
    print(f"\n{count} hosts at once, {FORKS} forks, medians of {runs}")
    show("wall clock", idle, probe, gather, count)
    show("processor of the controller", *processor, count)


def show(title: str, idle: float, probe: float, gather: float, count: int) -> None:
    """Print what a host costs, and how many times cheaper a discovery is."""
    probed, gathered = (1000 * (seconds - idle) / count for seconds in (probe, gather))
    ratio = f"gather_facts costs {gathered / probed:.1f} times as much"
    print(f"{title}: discover {probed:.0f} ms a host, gather_facts {gathered:.0f} ms a host; {ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=50, help="lab hosts to ask (default 50)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    options = parser.parse_args()
    os.environ.setdefault("LAB_NAME", "benchdisc")
    os.environ.setdefault("LAB_SUBNET_PREFIX", "10.87.242")
    lab = parse_lab(os.environ, lab_tool.yaml.safe_load(lab_tool.INVENTORY.read_text()), TOP)
    try:
        lab_tool.require_controller([])
        lab_tool.configure_podman(lab)
        with many_watches(), tempfile.TemporaryDirectory() as directory:
            measure(bring_up(lab, lab_hosts(options.hosts)), options.hosts, options.runs, directory)
    except LabError as exc:
        sys.exit(f"ERROR: {exc}")
    finally:
        if not options.keep:
            lab_tool.down(lab)


if __name__ == "__main__":
    main()
