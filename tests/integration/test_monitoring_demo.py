# SPDX-License-Identifier: GPL-3.0-or-later
"""`make monitoring`: from a line in the kernel's log to alertmanager and back, in a lab that is gone afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NAME, PREFIX = "monitoring", "10.87.206"

pytestmark = [
    pytest.mark.lab,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab needs root"),
]


def test_a_fault_becomes_an_alert_and_nothing_stays():
    done = subprocess.run(
        ["make", "monitoring"],
        cwd=TOP,
        env={**os.environ, "LAB_NAME": NAME, "LAB_SUBNET_PREFIX": PREFIX},
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    steps = (
        "Prometheus reaches every target", "out of service", "InstanceSick", "in service again", "The alert has ended",
    )  # fmt: skip
    places = [done.stdout.index(step) for step in steps]
    assert places == sorted(places) and "and none failed" in done.stdout
    shown = subprocess.run(["podman", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, check=True)
    assert f"bminf-{NAME}-" not in shown.stdout
