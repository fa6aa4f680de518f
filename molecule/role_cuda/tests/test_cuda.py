# SPDX-License-Identifier: GPL-3.0-or-later
"""A driver that was installed, and what the next run says of one that has come to harm."""

from __future__ import annotations

from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
HOSTS = ("cpu-12", "cpu-13")
DRIVER = ("nvidia-open", "nvidia-kernel-open-dkms", "nvidia-persistenced", "nvidia-driver-cuda")


@pytest.mark.parametrize("name", HOSTS)
def test_the_driver_is_there_at_one_version_and_held(fleet, name):
    host = fleet.hosts[name]
    assert set(DRIVER) <= set(host.check_output("apt-mark showhold").split())
    assert {host.package(package).version for package in DRIVER} == {"580.95.05-1"}
    assert host.package("linux-headers-6.1.0-40-amd64").is_installed
    assert not host.package("nvidia-fabricmanager").is_installed


@pytest.mark.parametrize("name", HOSTS)
def test_the_repository_is_believed_with_its_own_key_only(fleet, name):
    host = fleet.hosts[name]
    (source,) = host.check_output("grep -rl file:///srv/nvidia /etc/apt/sources.list.d").split()
    entry = host.file(source)
    assert entry.contains("Signed-By: /etc/apt/keyrings/cuda-")
    assert not entry.contains("Trusted")
    assert (entry.user, entry.mode) == ("root", 0o644)


@pytest.mark.parametrize("name", HOSTS)
def test_nouveau_stays_out_and_the_driver_stays_loaded(fleet, name):
    host = fleet.hosts[name]
    assert host.file("/etc/modprobe.d/baremetal-nouveau.conf").contains("^blacklist nouveau")
    service = host.service("nvidia-persistenced")
    assert service.is_running
    assert service.is_enabled


def test_a_library_of_another_version_is_found(fleet, cleaned):
    fleet.run("touch /var/lib/standin/mismatch")
    cleaned.append("rm /var/lib/standin/mismatch")
    words = "the tools and the loaded driver have different versions"
    assert fleet.play().fails_everywhere("driver is not healthy", words)


def test_a_chip_that_does_not_answer_and_one_that_the_driver_has_not_taken_are_found(fleet, cleaned):
    fleet.run("standin function 0000:c1:00.0 10de:26b9")
    cleaned.append("standin function 0000:c1:00.0 --remove")
    assert fleet.play().fails_everywhere("0000:c1:00.0", "4 of 5 chips")
    fleet.run("echo 0000:10:00.0 >/var/lib/standin/lost-chip")
    cleaned.append("rm /var/lib/standin/lost-chip")
    assert fleet.play().fails_everywhere("a chip no longer responds")


@pytest.mark.long
def test_a_package_that_is_no_longer_held_is_held_again(fleet):
    fleet.run("apt-mark unhold nvidia-open")
    done = fleet.play()
    assert done.rc == 0, done.output
    assert all("nvidia-open" in held.split() for held in fleet.run("apt-mark showhold").values())


def test_a_driver_that_is_too_old_for_the_release_is_left_alone_and_named(fleet, tmp_path):
    release = (TOP / "catalog/releases/0.33.0.yml").read_text()
    (tmp_path / "later.yml").write_text(release.replace('minimum_driver: "580.65.06"', 'minimum_driver: "590.48.01"'))
    before = fleet.run("dpkg-query -W 'nvidia*'; cat /var/lib/standin/log")
    done = fleet.play(cuda_release="later", cuda_release_path=[str(tmp_path)], cuda_version="")
    assert done.fails_everywhere("driver 580.95.05 is on the host", "needs 590.48.01 or newer", "cuda_policy is retain")
    assert fleet.run("dpkg-query -W 'nvidia*'; cat /var/lib/standin/log") == before


@pytest.mark.long
def test_a_module_that_is_not_the_one_on_disk_is_loaded_anew(fleet):
    fleet.run("echo 535.261.03 >/standin/sys/module/nvidia/version; : >/var/lib/standin/log")
    done = fleet.play()
    assert done.rc == 0, done.output
    for log in fleet.run("cat /var/lib/standin/log").values():
        assert log.index("stop nvidia-persistenced") < log.index("rmmod nvidia") < log.index("modprobe nvidia")
    assert set(fleet.run("cat /standin/sys/module/nvidia/version").values()) == {"580.95.05"}


def test_all_is_well_again_and_nothing_changes(fleet):
    done = fleet.play()
    assert done.rc == 0, done.output
    assert done.changed == 0
