# SPDX-License-Identifier: GPL-3.0-or-later
"""What one run of site.yml leaves on a host of each vendor and on one without chips, and what the next run says."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from serving_host import TOP, playbook, wait_active

from tests.lab_host import connect

INVENTORIES = ("-i", str(TOP / ".config/molecule/inventory/fleet"))
VENDORS = ("cuda", "rocm", "cann")
# What the three roles together may add to a run with nothing to do.
BUDGET = 25


@pytest.fixture(scope="module")
def again():
    """Run site.yml once more over all that is there; return what it said."""
    done = playbook("site.yml", inventories=INVENTORIES)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nvidias_host_has_driver_and_fabric_manager_of_one_version():
    host = connect("cuda-12")
    versions = set(host.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").split())
    assert versions == {"580.95.05"}
    assert host.package("nvidia-fabricmanager").version.startswith("580.95.05")
    assert host.service("nvidia-fabricmanager").is_running


def test_amds_host_has_the_driver_and_no_more():
    host = connect("rocm-13")
    assert host.package("amdgpu-dkms").is_installed
    # Containers bring their own.
    assert not host.package("amdrocm10.0").is_installed
    assert host.group("render").exists


def test_huaweis_host_has_driver_firmware_and_user():
    host = connect("cann-12")
    assert "Total Count" in host.check_output("npu-smi info -l")
    assert host.user("HwHiAiUser").group == "HwHiAiUser"
    assert host.file("/usr/local/Ascend/firmware/version.info").exists


def test_the_host_without_chips_serves():
    host = connect("cpu-12")
    wait_active(host)
    assert host.check_output("curl -sf http://localhost:8000/health -o /dev/null -w '%{http_code}'") == "200"


def test_a_run_with_nothing_to_do_costs_little(again):
    assert "changed=0" in again
    assert not re.search(r"changed=[1-9]", again)
    tasks = Counter()
    role = None
    for line in again.splitlines():
        heading = re.match(r"TASK \[(?:baremetal\.inference\.(\w+) : )?", line)
        if heading:
            role = heading.group(1)
        elif role in (*VENDORS, "vendor_stack") and re.match(r"(ok|changed): \[", line):
            tasks[re.search(r"\[([\w-]+)\]", line).group(1)] += 1
    assert set(tasks) == {"cuda-12", "rocm-13", "cann-12"}
    assert sum(tasks.values()) <= BUDGET


@pytest.mark.long
def test_other_mig_instances_than_those_of_the_plans_stop_their_host():
    host = connect("cuda-12")
    kept = host.file("/var/lib/standin/mig").content_string
    host.check_output("echo 20480 20480 20480 20480 >/var/lib/standin/mig")
    try:
        done = playbook("site.yml", "-l", "cuda-12", inventories=INVENTORIES)
    finally:
        host.check_output(f"echo {kept.strip()} >/var/lib/standin/mig")
    words = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert "instances of 20480, 20480, 20480, 20480 MiB" in words
    assert "nvidia-smi mig -i" in words


@pytest.mark.long
def test_a_host_that_is_not_whole_is_named_and_holds_up_no_other():
    connect("cuda-12").check_output("touch /var/lib/standin/mismatch")
    try:
        done = playbook("site.yml", inventories=INVENTORIES)
    finally:
        connect("cuda-12").check_output("rm /var/lib/standin/mismatch")
    words = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    assert (
        "cuda-12: NVIDIA's driver is not healthy: nvidia-smi: the tools and the loaded driver have different versions"
        in words
    )
    failed = dict(re.findall(r"^(\S+)\s+: ok=.*failed=(\d+)", done.stdout, re.MULTILINE))
    assert {name for name, number in failed.items() if number != "0"} == {"cuda-12"}
    # The rest has come to its end.
    assert re.search(r"Wait until each instance answers.*?ok: \[cpu-12\]", done.stdout, re.DOTALL)
