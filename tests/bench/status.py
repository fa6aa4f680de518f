#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status.yml costs for 1,000 hosts with two instances each and two gateways; the goal is 10 s.

    status    status.yml, with two gateways on this machine that have no HAProxy to read
    page      its last play alone, with what two gateways report of 2,000 servers, 40 of them sick or drained

Start of Ansible and inventory are included in both. On a busy machine only the processor seconds mean anything.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from monitoring import SHARED, measure

GATEWAYS, GOAL = ("gw-1", "gw-2"), 10


def inventory(top: Path, number_of_hosts: int) -> str:
    """Write the inventory and return its path; an address for documentation, so that contacting a host would fail."""
    hosts = {
        f"gpu-{number:04}": {"ansible_host": "192.0.2.1", "accelerator": "h200", "accelerator_count": 8,
                             "cluster": f"c{number // 250}"}
        for number in range(number_of_hosts)
    }  # fmt: skip
    here = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
    groups = {"inference": {"hosts": hosts, "vars": SHARED}, "gateways": {"hosts": dict.fromkeys(GATEWAYS, here)}}
    (top / "hosts.json").write_text(json.dumps({"all": {"children": groups}}))
    return str(top / "hosts.json")


def server(number: int) -> dict[str, Any]:
    """Return what a gateway reports of a server."""
    found = {"state": "ready", "up": True, "why": "", "owner": "", "reason": "", "since": ""}
    found |= {"sessions": 3, "queued": 0, "changed_s": 60 * number, "downs": 0}
    if number % 100 == 7:
        return {**found, "up": False, "why": "sick: isolate_host xid 79 of 0000:5d:00.0"}
    if number % 100 == 8:
        return {**found, "state": "drain", "owner": "admin:alice", "reason": "new fans", "since": "2026-11-24"}
    return found


def fleet_page(top: Path, number_of_hosts: int) -> str:
    """Write the play that shows the fleet with what the gateways report, and return its path."""
    servers = {
        f"gpu-{number:04}--{name}": {**server(number), "backend": name}
        for number in range(number_of_hosts)
        for name in SHARED["vllm_instances"]
    }
    backends = {name: {"ready": 0, "servers": number_of_hosts, "queued": 0} for name in SHARED["vllm_instances"]}
    gateways = {name: {"servers": servers, "backends": backends, "tokens_per_s": {}} for name in GATEWAYS}
    task = {"baremetal.inference.fleet_page": {"page": str(top / "fleet.html"), "gateways": gateways},
            "run_once": True}  # fmt: skip
    (top / "play.json").write_text(json.dumps([{"hosts": "inference", "gather_facts": False, "tasks": [task]}]))
    return str(top / "play.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1_000, help="hosts, 8 or more (default 1000)")
    hosts = parser.parse_args().hosts
    slow = []
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        path = inventory(top, hosts)
        page = json.dumps({"status_page": str(top / "status.html")})
        for name, words in {
            "status": ("playbooks/status.yml", "-e", page),
            "page": (fleet_page(top, hosts),),
        }.items():
            # The first run compiles what is not compiled yet.
            runs = [measure("-i", path, *words, status=2 if name == "status" else 0) for _run in range(2)]
            took, busy = runs[-1]
            print(f"{name:9} {took:5.1f} s, {busy:5.1f} s of a processor, {hosts} hosts")
            slow += [name] if busy > GOAL else []
        sick = (top / "fleet.html").read_text().count("xid 79")
    if not sick:
        sys.exit("the page shows no sick host")
    if slow:
        sys.exit(f"{', '.join(slow)} took more than {GOAL} s")


if __name__ == "__main__":
    main()
