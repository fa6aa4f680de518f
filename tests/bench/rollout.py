#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a rollout takes for each host, beside the least that it can take: draining, stopping and starting, the gate.

A flag is changed on the three hosts of the lab of tests/rollout, one after the other, with chats all the while. Of that
run:

    took    from the host's first step until its last
    bound   drain  the steps that wait for its requests to end
          + start  from systemd's stop of the old vLLM until the new one is active, read on the host
          + gate   the step that asks and measures, and the seconds for which the gateways' errors are watched after it
    rest    what Ansible, the files, the questions of verify.yml, the gateway's health checks and the slots add

The whole run is compared with the sum of the bounds: it also looks at all hosts first, and opens and closes each wave.

What a host does is compared with its record, as it is unless rollout_baseline says otherwise. A host's first rollout
measures that record, so one rollout comes before the one that is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))
os.environ.setdefault("LAB_NAME", "rollout")
os.environ.setdefault("LAB_SUBNET_PREFIX", "10.87.203")
os.environ.setdefault("LAB_HOME", str(TOP / ".lab"))

from tests.rollout.site import HOSTS, Site, lasted, steps

GOAL = 1.15
WATCH = 3  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    site = Site()
    site.bring_up()
    for host in HOSTS:
        # Servers compile a module at each call; the lab's hosts would not (tools/lab/image.sh).
        subprocess.run([str(TOP / "bin/lab"), "ssh", host, "rm -rf /run/lab-compiled"], check=True, cwd=TOP)
    # A host that was left in the middle would be measured from there.
    site.settle()
    options = {"rollout_waves": [1], "rollout_baseline": "record", "rollout_watch": WATCH}
    site.change_flag()
    before = site.rollout(**options)
    if before.code:
        sys.exit(f"{before.output}\nthe rollout that measures the hosts' records failed")
    site.change_flag()
    with site.load() as load:
        run = site.rollout(**options)
    if run.code:
        sys.exit(f"{run.output}\nthe rollout failed")
    journal = site.journal()
    print(f"{'host':8} {'took':>7} {'drain':>7} {'start':>7} {'gate':>7} {'bound':>7} {'rest':>7} {'ratio':>6}")
    ratios, turns, bounds = [], 0.0, 0.0
    for host in HOSTS:
        if not steps(journal, host):
            sys.exit(f"{host} did not change")
        seconds = lasted(journal, host)
        took, drain = sum(seconds.values()), seconds.get("drain", 0) + seconds.get("idle", 0)
        start, gate = site.restarted(host), seconds.get("gate", 0) + WATCH
        bound = drain + start + gate
        ratios.append(took / bound)
        turns, bounds = turns + took, bounds + bound
        figures = (took, drain, start, gate, bound, took - bound)
        print(f"{host:8} {' '.join(f'{figure:7.1f}' for figure in figures)} {took / bound:6.2f}")
    failed = len(load.failed())
    print(f"\nThe whole run {run.seconds:.1f} s, the turns {turns:.1f} s of it")
    print(f"{len(load.rows)} requests, {failed} of them failed")
    print(f"Time per host against its bound: {statistics.mean(ratios):.2f} (goal at most {GOAL})")
    print(f"The whole run against the bounds of its turns: {run.seconds / bounds:.2f} (goal at most {GOAL})")


if __name__ == "__main__":
    main()
