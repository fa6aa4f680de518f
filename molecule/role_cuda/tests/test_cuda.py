# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver that was installed, and what the next run says of one that has come to harm."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
INVENTORY = TOP / ".config/molecule/inventory/role"
SMI = "/usr/bin/nvidia-smi"


def run_again(host, *options):
    """Run the play once more over this host; return the status and all words in one line."""
    words = ["ansible-playbook", "-i", str(INVENTORY), "-l", host.backend.host, *options,
             str(TOP / "molecule/role_cuda/converge.yml")]  # fmt: skip
    environment = {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(words, cwd=TOP, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def standin(host):
    """Return the host; what a test plants in the stand-in is gone after it."""
    yield host
    host.check_output("rm -f /var/lib/standin/mismatch /var/lib/standin/kept")


def test_the_driver_is_there_at_one_version_and_held(host):
    held = set(host.check_output("apt-mark showhold").split())
    assert {"nvidia-open", "nvidia-kernel-open-dkms", "nvidia-persistenced"} <= held
    versions = {
        host.package(name).version for name in ("nvidia-open", "nvidia-kernel-open-dkms", "nvidia-persistenced")
    }
    assert versions == {"580.95.05-1"}
    assert host.package("linux-headers-6.1.0-40-amd64").is_installed


def test_no_fabric_manager_comes_to_a_host_without_switches(host):
    assert not host.package("nvidia-fabricmanager").is_installed


def test_the_repository_is_believed_with_its_own_key_only(host):
    (source,) = host.check_output("grep -rl file:///srv/nvidia /etc/apt/sources.list.d").split()
    entry = host.file(source)
    assert entry.contains("Signed-By: /etc/apt/keyrings/cuda-")
    assert not entry.contains("Trusted")
    assert (entry.user, entry.mode) == ("root", 0o644)


def test_nouveau_stays_out_and_the_driver_stays_loaded(host):
    assert host.file("/etc/modprobe.d/baremetal-nouveau.conf").contains("^blacklist nouveau")
    service = host.service("nvidia-persistenced")
    assert service.is_running
    assert service.is_enabled


def test_a_library_of_another_version_is_found(standin):
    standin.check_output("touch /var/lib/standin/mismatch")
    status, words = run_again(standin)
    assert status != 0
    assert "the tools are of another version than the driver that is loaded" in words
    assert f"{standin.backend.host}: NVIDIA's driver is not whole" in words


def test_a_package_that_is_no_longer_held_is_held_again(standin):
    standin.check_output("apt-mark unhold nvidia-open")
    status, words = run_again(standin)
    assert status == 0, words
    assert "nvidia-open" in standin.check_output("apt-mark showhold").split()


def test_a_chip_that_the_driver_has_not_taken_is_found(standin):
    bus = "/standin/sys/bus/pci/devices"
    standin.check_output(f"cp -r {bus}/0000:10:00.0 {bus}/0000:11:00.0")
    try:
        status, words = run_again(standin)
    finally:
        standin.check_output(f"rm -r {bus}/0000:11:00.0")
    assert status != 0
    assert "0000:11:00.0" in words
    assert "1 of 2 chips" in words


def test_a_driver_that_is_too_old_for_the_release_is_left_alone_and_named(standin):
    version = "/standin/sys/module/nvidia/version"
    standin.check_output(f"cp {version} /var/lib/standin/kept && echo 535.261.03 > {version}")
    before = standin.check_output("dpkg-query -W 'nvidia*'")
    try:
        status, words = run_again(standin)
    finally:
        standin.check_output(f"cp /var/lib/standin/kept {version}")
    assert status != 0
    assert "535.261.03" in words
    assert standin.check_output("dpkg-query -W 'nvidia*'") == before


def test_all_is_well_again_and_nothing_changes(host):
    status, words = run_again(host)
    assert status == 0, words
    assert "changed=0" in words
