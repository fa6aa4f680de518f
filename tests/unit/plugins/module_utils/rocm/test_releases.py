# SPDX-License-Identifier: GPL-3.0-or-later
"""Which driver belongs to a release of ROCm, and the systems that it has packages for."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import (
    RELEASES,
    code_of,
    el_directory,
    release_of,
    system_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Host, StackError


def host(distribution="ubuntu", version="24.04", architecture="x86_64"):
    return Host(distribution, version, "noble", architecture, "6.8", "6.8")


def test_a_release_of_two_numbers_is_its_first():
    assert release_of("7.2") is RELEASES["7.2.0"] and release_of("7.2.1") is RELEASES["7.2.1"]


def test_a_driver_in_the_release_file_wins_over_the_table():
    assert release_of("7.2.0", "30.30") is RELEASES["7.2.0"]
    other = release_of("7.2.0", "30.20")
    assert (other.rocm, other.driver, other.module) == ("7.2.0", "30.20", RELEASES["7.1.0"].module)


def test_a_release_that_is_newer_than_the_table_needs_its_driver_named():
    with pytest.raises(StackError, match=r"driver of ROCm 99\.1 is not known; known releases are 6\.4\.0, .*amdgpu"):
        release_of("99.1")
    newest = list(RELEASES.values())[-1]
    found = release_of("99.1", "77.10")
    assert (found.rocm, found.driver, found.module, found.systems) == ("99.1.0", "77.10", "", newest.systems)
    # One that is older than all of them is judged as the oldest.
    assert release_of("5.0", "5.0").systems == RELEASES["6.4.0"].systems


@pytest.mark.parametrize(
    ("driver", "code"), [("6.4.4", "60404"), ("30.20.1", "30200100"), ("31.50", "31500000"), ("6.4", "60400")]
)
def test_the_code_of_a_driver_in_the_versions_of_its_packages(driver, code):
    assert code_of(driver) == code


@pytest.mark.parametrize(
    ("rocm", "layout"), [("7.2.4", "classic"), ("7.13.0", "therock"), ("7.14.0", "therock"), ("10.0.0", "core")]
)
def test_the_layout_of_a_repository_follows_from_the_release(rocm, layout):
    assert RELEASES[rocm].layout == layout


@pytest.mark.parametrize(
    ("distribution", "version", "tag"),
    [
        ("ubuntu", "24.04", "ubuntu2404"),
        ("debian", "12", "debian12"),
        ("rhel", "9.6", "rhel9"),
        ("almalinux", "9.4", "rhel9"),
        ("rocky", "9", "rhel9"),
    ],
)
def test_a_clone_uses_the_packages_of_rhel(distribution, version, tag):
    assert system_of(host(distribution, version), RELEASES["7.0.0"]).tag == tag


@pytest.mark.parametrize(
    ("system", "message"),
    [
        # A newer release has it.
        (("debian", "13"), r"supported are Debian 12, .*; choose a newer rocm_version$"),
        (("fedora", "42"), "fedora 42 is not supported by AMD's driver 30.10 (?!.*choose a newer)"),
        (("ubuntu", "24.04", "aarch64"), "AMD has no driver for aarch64; expected x86_64"),
    ],
)
def test_a_system_without_packages_is_refused_with_those_that_have_some(system, message):
    with pytest.raises(StackError, match=message):
        system_of(host(*system), RELEASES["7.0.0"])


@pytest.mark.parametrize(
    ("version", "directory"),
    [("9.6", "9.6"), ("9.5", "9.4"), ("9.9", "9.7"), ("9", "9.7"), ("9.2", "9.4"), ("10.0", "10"), ("10", "10.1")],
)
def test_the_directory_of_a_rhel_is_its_own_or_the_newest_before_it(version, directory):
    assert el_directory(host("rhel", version), RELEASES["7.2.0"]) == directory


def test_a_rhel_without_a_directory_is_refused():
    with pytest.raises(StackError, match=r"has no repository for rhel 10\.1; choose another rocm_version"):
        el_directory(host("rhel", "10.1"), RELEASES["7.0.0"])
