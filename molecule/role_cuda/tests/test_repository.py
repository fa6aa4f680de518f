# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories that cannot be used: nothing comes from them, and the host is as it was."""

from __future__ import annotations

import pytest

ON = ("cpu-13",)
UPGRADE = {"cuda_version": "580.159.04", "cuda_policy": "install"}
SOURCES = "/etc/apt/sources.list.d"


@pytest.fixture
def untouched(fleet, cleaned):
    """See that a run has changed nothing that serves, and have a good repository after it."""
    cleaned.append("rm -rf /srv/nvidia && mv /srv/kept /srv/nvidia")
    fleet.run("cp -a /srv/nvidia /srv/kept")
    fleet.run(": >/var/lib/standin/log")
    packages = "dpkg-query -W 'nvidia*'; apt-mark showhold"
    looks = f"cat /var/lib/standin/log; {packages}; nvidia-smi; systemctl is-active nvidia-persistenced"
    before = fleet.run(looks)
    yield
    assert fleet.run(looks) == before
    fleet.run("apt-get -q update")


def test_a_repository_that_another_key_signs_is_not_believed_and_its_file_is_taken_back(fleet, untouched):
    fleet.mirror("--rotate-key")
    # As on a host that has never had it.
    fleet.run(f"mkdir /srv/aside && mv {SOURCES}/cuda-* /srv/aside")
    done = fleet.play(**UPGRADE)
    left = fleet.run(f"ls {SOURCES}")
    fleet.run(f"mv /srv/aside/* {SOURCES} && rmdir /srv/aside")
    assert done.fails_everywhere("a repository of NVIDIA's driver cannot be used", "cuda_mirror")
    assert not any("cuda" in names for names in left.values())


def test_a_repository_that_is_not_there_leaves_the_one_that_was(fleet, untouched):
    before = fleet.run(f"cat {SOURCES}/cuda-*")
    done = fleet.play(**UPGRADE, cuda_mirror="http://127.0.0.1:9/nvidia")
    assert done.fails_everywhere("a repository of NVIDIA's driver cannot be used", "Connection refused")
    assert fleet.run(f"cat {SOURCES}/cuda-*") == before


@pytest.mark.long
def test_a_version_that_is_gone_is_named_with_those_that_are_there(fleet, untouched):
    fleet.mirror("--forget", "580.159.04")
    assert fleet.play(**UPGRADE).fails_everywhere("the repository has no driver 580.159.04; it has 580.95.05")


@pytest.mark.long
def test_a_package_that_is_not_what_the_index_says_is_not_installed(fleet, untouched):
    fleet.mirror("--corrupt", "nvidia-kernel-open-dkms")
    assert fleet.play(**UPGRADE).fails_everywhere("nvidia-kernel-open-dkms_580.159.04-1_amd64.deb")
