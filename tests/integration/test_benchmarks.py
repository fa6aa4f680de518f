# SPDX-License-Identifier: GPL-3.0-or-later
"""Every benchmark of make bench runs to its end, with little to measure: the figures mean nothing here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BENCH = TOP / "tests/bench"
SHORT = {
    "render.py": ("--runs", "1", "--hosts", "2", "4", "--few", "1"),
    "groups.py": ("--groups", "2", "--size", "2"),
    "inventory.py": ("10", "--runs", "1"),
    "monitoring.py": ("--hosts", "4"),
    "status.py": ("--hosts", "8"),
    "scrape.py": ("--instances", "3", "--seconds", "1", "--settle", "1"),
    "gateway_streams.py": ("--rounds", "1", "--streams", "2", "--single", "2"),
    "gateway_models.py": ("--turns", "2"),
    "gateway_affinity.py": ("--at-once", "2", "--conversations", "2"),
    "gateway_fair.py": ("--seconds", "2", "--engines", "1", "--places", "2"),
    "weights.py": ("--rounds", "1", "--megabytes", "4", "--small", "4"),
    "origin.py": ("--hosts", "2", "--megabytes", "4"),
}
# They bring up hosts of the lab, which takes minutes: with the long tests, and elsewhere they must at least begin.
OF_THE_LAB = {
    "discover.py": ("--hosts", "2", "--runs", "1"),
    "site.py": ("--runs", "1"),
    "gateway.py": ("--requests", "2", "--rounds", "1", "--seconds", "1"),
    "rollout.py": (),
}
# They plan for minutes of CPU, or measure for more than a minute, however little there is: with the long tests, and
# elsewhere they must at least begin.
LONG = {"gateway_fair.py", "groups.py", "inventory.py", "render.py", "status.py"}
# Seconds after which one hangs.
HANGS, HANGS_IN_THE_LAB = 1800, 7200
PARTS = ("inventory_fleet.py", "inventory_inside.py")
NEEDS = {"scrape.py": "prometheus", "weights.py": "nginx", "origin.py": "nginx"}
NEEDS |= {name: "haproxy" for name in SHORT if name.startswith("gateway")}


def run(name, *words, seconds=HANGS):
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    command = [sys.executable, str(BENCH / name), *words]
    return subprocess.run(
        command, cwd=TOP, env=environment, capture_output=True, text=True, check=False, timeout=seconds
    )


def test_every_benchmark_has_a_short_form():
    assert {path.name for path in BENCH.glob("*.py")} == {*SHORT, *OF_THE_LAB, *PARTS}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in SHORT])
def test_a_benchmark_runs_to_its_end(name):
    tool = NEEDS.get(name, "")
    if tool and not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip(f"no {tool} here")
    done = run(name, *SHORT[name])
    assert done.returncode == 0 and done.stdout, (done.stdout + done.stderr)[-3000:]


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root")
@pytest.mark.parametrize("name", OF_THE_LAB)
def test_a_benchmark_of_the_lab_runs_to_its_end(name):
    done = run(name, *OF_THE_LAB[name], seconds=HANGS_IN_THE_LAB)
    assert done.returncode == 0 and done.stdout, (done.stdout + done.stderr)[-3000:]


@pytest.mark.parametrize("name", sorted({*OF_THE_LAB, *LONG}))
def test_a_long_benchmark_can_begin(name):
    done = run(name, "--help")
    assert done.returncode == 0 and "options:" in done.stdout, done.stderr[-3000:]
