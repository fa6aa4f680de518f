# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver is upgraded under a running instance: what uses it stops first, in order, and runs again afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standins.fleet import Fleet

FETCH = Path(__file__).resolve().parents[1] / "fetch.yml"
OLD, NEW = "580.95.05", "580.159.04"
UPGRADE = {"cuda_version": NEW, "cuda_policy": "install"}
RUNNING = "systemctl is-active vllm@chat nvidia-persistenced"


@pytest.fixture
def serving(fleet, cleaned):
    """Have an instance that serves on the chips."""
    cleaned.append("systemctl stop vllm@chat")
    fleet.run("modprobe nvidia_uvm")
    fleet.serve()


@pytest.mark.long
def test_what_comes_is_fetched_ahead_and_nothing_changes(fleet, cleaned, serving):
    # Of a repository that is a directory nothing is fetched.
    fleet.run("systemd-run --unit=mirror-http python3 -m http.server --directory /srv/nvidia --bind 127.0.0.1 8099")
    cleaned.append("systemctl stop mirror-http; apt-get clean")
    state = "dpkg -l | sha256sum; apt-mark showhold; wc -l < /var/lib/standin/log; ls /etc/apt/preferences.d"
    before = fleet.run(state)
    ahead, mirror = Fleet(FETCH), {"cuda_mirror": "http://127.0.0.1:8099"}
    done = ahead.play(**UPGRADE, **mirror)
    assert done.rc == 0, done.output
    for fetched in fleet.run("ls /var/cache/apt/archives").values():
        assert f"nvidia-open_{NEW}" in fetched and f"nvidia-kernel-open-dkms_{NEW}" in fetched and OLD not in fetched
    missing = {**UPGRADE, "cuda_version": "580.999.99"}
    assert ahead.play(**missing, **mirror).fails_everywhere("580.999.99")
    assert fleet.run(state) == before
    assert set(fleet.run(RUNNING).values()) == {"active\nactive"}


def test_a_process_that_is_not_an_instance_stops_the_upgrade(fleet, cleaned, serving):
    fleet.run("systemctl start trainer")
    cleaned.append("systemctl stop trainer")
    assert fleet.play(**UPGRADE).fails_everywhere("trainer of trainer.service", "/dev/nvidia1")
    assert set(fleet.run(RUNNING).values()) == {"active\nactive"}
    assert all("stop" not in log for log in fleet.run("cat /var/lib/standin/log").values())


@pytest.mark.long
def test_a_disk_that_is_full_leaves_the_old_driver_serving(fleet, serving):
    place = f"/usr/src/nvidia-{NEW}"
    fleet.run(f"mkdir -p {place} && mount -t tmpfs -o size=16k standin {place}")
    try:
        done = fleet.play(**UPGRADE)
    finally:
        fleet.run(f"umount {place}")
    assert done.fails_everywhere("No space left on device")
    assert set(fleet.run(RUNNING).values()) == {"active\nactive"}
    assert all(f"Driver Version: {OLD}" in said for said in fleet.run("nvidia-smi").values())


def test_the_instance_stops_first_and_starts_last(fleet, serving):
    done = fleet.play(**UPGRADE)
    assert done.rc == 0, done.output
    fleet.until('grep -q "^start vllm@chat" /var/lib/standin/log')
    for name, log in fleet.run("cat /var/lib/standin/log").items():
        steps = [
            line for line in log.splitlines() if line.startswith(("stop", "rmmod", "dkms standin", "modprobe", "start"))
        ]
        assert steps == [
            "stop vllm@chat",
            "stop nvidia-persistenced",
            "rmmod nvidia_uvm",
            "rmmod nvidia",
            f"dkms standin-install nvidia {NEW}",
            "modprobe nvidia",
            "start nvidia-persistenced",
            "start vllm@chat",
        ], name
    assert set(fleet.run(RUNNING).values()) == {"active\nactive"}
    assert all(f"Driver Version: {NEW}" in said for said in fleet.run("nvidia-smi").values())


@pytest.mark.long
def test_a_change_that_is_cut_off_is_ended_by_the_next_run(fleet, cleaned):
    """The power goes while the kernel module of another driver is built, here on the way back."""
    wanted = " ".join(f"{name}={OLD}-1" for name in ("nvidia-kernel-open-dkms", "nvidia-open", "nvidia-driver-cuda"))
    options = "-q -y --allow-change-held-packages --allow-downgrades"
    fleet.run(f"apt-get {options} install nvidia-driver-pinning-{OLD} && echo 600 >/var/lib/standin/slow-build")
    fleet.run(f": >/var/lib/standin/log; systemd-run --unit=cut apt-get {options} install {wanted}")
    fleet.until(f'grep -q "install nvidia {OLD}" /var/lib/standin/log')
    fleet.run("systemctl kill --signal=KILL cut; sleep 0.5; rm /var/lib/standin/slow-build")
    assert all(fleet.run("dpkg --audit").values())
    # The machine starts again: there is no module for it now.
    fleet.run("systemctl reset-failed; systemctl stop nvidia-persistenced; standin boot")
    assert not any(fleet.run("ls /standin/sys/module | grep nvidia || true").values())
    done = fleet.play(cuda_policy="install")
    assert done.rc == 0, done.output
    assert set(fleet.run("dpkg --audit").values()) == {""}
    assert all(f"Driver Version: {OLD}" in said for said in fleet.run("nvidia-smi").values())
