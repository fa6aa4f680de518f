# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.host import HostSettings
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.program_host import apply, status
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.settings import GRUB_FILE, LIMITS_FILE

from tests.fakes.programs import installed
from tests.unit.plugins.module_utils.host_tuning.conftest import EVERYTHING

TOP = Path(__file__).resolve().parents[5]


@pytest.fixture
def config(kernel, monkeypatch):
    """The configuration of the program on a machine, whose files are below its own root."""
    monkeypatch.setattr(HostSettings.__init__, "__defaults__", ("/sys", "/proc", str(kernel.root)))
    settings = {key: EVERYTHING[key] for key in EVERYTHING if key not in ("limits", "iommu_pt")}
    kernel.write(
        "config.json",
        json.dumps({"settings": settings, "sysfs_root": str(kernel.sysfs), "proc_root": str(kernel.proc)}),
    )
    return str(kernel.top / "config.json")


def test_a_boot_sets_what_it_has_lost_and_keeps_the_way_back(kernel, config):
    kernel.run(EVERYTHING)
    assert status(config)[0] == 0
    kernel.write("proc/sys/kernel/numa_balancing", "1\n")
    assert status(config)[0] == 1
    assert "numa_balancing: 1 -> 0 (kernel.numa_balancing)" in apply(config)
    assert status(config)[0] == 0
    assert kernel.settings().saved()["limits"][LIMITS_FILE] == ""


def test_a_stop_of_the_unit_returns_and_the_next_start_sets_again(kernel, config):
    kernel.run(EVERYTHING)
    apply(config, back=True)
    assert kernel.text("proc/sys/kernel/numa_balancing") == "1" and kernel.acs() == 0x1D
    # Files stay: the stop of a unit is no word about limits and kernel arguments.
    assert (kernel.root / GRUB_FILE[1:]).exists()
    apply(config)
    assert kernel.text("proc/sys/kernel/numa_balancing") == "0" and kernel.acs() == 0


def test_the_program_runs_with_nothing_but_its_library(kernel, config):
    program = installed("host-tuning", kernel.top / "lib")
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    done = run([sys.executable, "-I", program, "status", config])
    assert done.returncode == 1 and "governor: powersave -> performance" in done.stdout, done.stderr
    done = run([sys.executable, "-I", program, "help"])
    assert done.returncode == 2 and "host-tuning.py status" in done.stderr
