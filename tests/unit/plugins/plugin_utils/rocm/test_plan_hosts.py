# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that have a driver of AMD's, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import plan_driver as _plan_driver

from tests.fakes.driver_plans import halting
from tests.fakes.rocm_systems import (
    BUILT,
    DEB_DRIVER,
    DEB_KERNEL,
    DRIVEN,
    INSTALLED,
    MI300X,
    MI355X,
    OWN,
    RADEON,
    REQUEST,
    SYSTEMS,
    asked,
    commands,
    specs,
    working,
)

plan_driver = halting(_plan_driver)


@pytest.mark.parametrize("policy", ["retain", "install", "halt"])
@pytest.mark.parametrize("source", ["vendor", "none", "mirror"])
def test_a_driver_that_works_is_left_alone(policy, source):
    found = plan_driver(working(), MI300X, DRIVEN, replace(REQUEST, policy=policy, source=source))
    assert found.halt is None
    assert (found.repositories, found.packages, found.remove_first, found.finish) == ((), (), (), ())
    assert (found.reboot, found.unload, found.notes) == ((), (), ())
    assert found.hold == ("amdgpu-dkms", "amdgpu-dkms-firmware")
    assert plan_driver(working(), MI300X, DRIVEN, replace(REQUEST, hold=False)).hold == ()


@pytest.mark.parametrize(
    ("chips", "minimum", "who"),
    [
        (MI300X, "6.19", "release 0.33.0 needs 6.19 or newer"),
        (MI355X, "6.8.5", None),
    ],
)
def test_a_driver_below_what_is_needed(chips, minimum, who):
    halt = plan_driver(working(), chips, DRIVEN, replace(REQUEST, minimum=minimum)).halt
    assert (halt is not None) == (who is not None)
    if who:
        assert halt == (
            f"driver 6.16.13.30300300 is on the host, {who}, and rocm_policy is retain with rocm_source vendor; set "
            "rocm_policy to install and a source, or choose a release that works with it"
        )


def test_a_driver_below_what_the_chip_needs():
    host = working(
        packages={**INSTALLED, "amdgpu-dkms": "1:6.12.12.60404-2202139.24.04"}, modules={"amdgpu": Module("6.12.12")}
    )
    halt = plan_driver(host, MI355X, DRIVEN, replace(REQUEST, minimum="6.10.5")).halt
    assert halt.startswith("driver 6.12.12.60404 is on the host, gfx950 (mi355x) needs 6.14.14 or newer, and")


def test_a_driver_is_replaced_where_that_is_allowed():
    found = plan_driver(working(), MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert specs(found, working()) == DEB_DRIVER
    assert found.replaces == "6.16.13"
    assert found.unload == ("amdgpu", "amdttm", "amdkcl")
    assert found.reboot == ("the loaded driver is 6.16.13, 31.50 (ROCm 10.0.0) takes its place",)
    assert commands(found) == ["update-initramfs -u -k all"]
    # Once nothing is loaded any more, nothing is in the way.
    found = plan_driver(working(modules={}), MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert (found.reboot, commands(found)[-1]) == ((), "modprobe amdgpu")


def test_another_rocm_is_only_taken_where_that_is_allowed():
    retained = plan_driver(working(), MI300X, DRIVEN, asked("10.0.0"))
    assert retained.packages == ()
    assert retained.notes == ("driver 6.16.13.30300300 is retained, rocm_version asks for 10.0.0 with driver 31.50",)
    halted = plan_driver(working(), MI300X, DRIVEN, asked("10.0.0", policy="halt")).halt
    assert "rocm_version asks for ROCm 10.0.0 with driver 31.50, and rocm_policy is halt" in halted
    assert plan_driver(working(), MI300X, DRIVEN, asked("7.2.2", policy="halt")).halt is None


def test_a_driver_that_came_in_no_package_is_not_overwritten():
    host = working(packages={})
    assert plan_driver(host, MI300X, DRIVEN, REQUEST).halt is None
    found = plan_driver(host, MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert (
        found.halt
        == "driver 6.16.13 was not installed from the package amdgpu-dkms, which cannot replace it; remove it first"
    )


def test_a_driver_of_amds_where_the_kernels_own_is_wanted():
    assert plan_driver(working(), MI300X, DRIVEN, replace(REQUEST, source="distro")).halt is None
    found = plan_driver(working(), MI300X, DRIVEN, replace(REQUEST, source="distro", policy="install"))
    assert found.halt.startswith("driver 6.16.13.30300300 of AMD's is on the host and rocm_source is distro; remove")


def test_a_new_kernel_gets_headers_and_module_before_it_boots():
    following = "6.12.57+deb13-amd64"
    found = plan_driver(working(next_kernel=following), MI300X, DRIVEN, REQUEST)
    assert specs(found, working()) == [f"linux-headers-{following}"]
    assert commands(found) == [f"dkms autoinstall -k {following}"]
    assert found.repositories == ()
    assert found.reboot == ()


def test_an_upgrade_that_waits_for_its_reboot():
    shown = replace(DRIVEN, disk="7.1.3.31500000", is_stale=True)
    found = plan_driver(
        working(packages={**INSTALLED, "amdgpu-dkms": "1:7.1.3.31500000-1.24.04"}), MI300X, shown, REQUEST
    )
    assert found.packages == ()
    assert found.reboot == ("the loaded driver is 6.16.13, the installed one is 7.1.3.31500000",)
    assert found.unload == ("amdgpu", "amdttm", "amdkcl")


def test_an_install_that_was_cut_short_is_taken_up_again():
    found = plan_driver(
        working(modules={}, dkms=(replace(BUILT[0], kernel="", state="added"),)), MI300X, DRIVEN, REQUEST
    )
    assert commands(found) == [f"dkms autoinstall -k {DEB_KERNEL}", "modprobe amdgpu"]
    half = {name: version for name, version in INSTALLED.items() if name != "amdgpu-dkms-firmware"}
    found = plan_driver(working(packages=half), MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert specs(found, working()) == DEB_DRIVER


def test_the_vendors_own_files_for_apt():
    url = f"{RADEON}/amdgpu/31.50/ubuntu"
    fresh, path = SYSTEMS["ubuntu2404"][0], "/etc/apt/sources.list.d/amdgpu.list"
    shown = RocmHostState(sources={path: f"deb [signed-by=/etc/apt/keyrings/rocm.gpg] {url} noble main"})
    assert plan_driver(fresh, MI300X, shown, REQUEST).halt == (
        f"{path} names {url} with another key, and apt refuses a repository that two files name with different "
        "keys; delete that file, the role writes another"
    )
    host = replace(fresh, packages={**fresh.packages, "amdgpu-install": "31.50.315000-1"})
    found = plan_driver(host, MI300X, shown, REQUEST)
    assert (found.halt, found.remove_first) == (None, ("amdgpu-install",))
    older = RocmHostState(sources={path: f"deb {RADEON}/amdgpu/30.30/ubuntu noble main"})
    assert plan_driver(fresh, MI300X, older, REQUEST).halt is None


def test_a_password_of_the_mirror_is_not_shown_with_the_file_that_names_it_too():
    fresh, path = SYSTEMS["ubuntu2404"][0], "/etc/apt/sources.list.d/amdgpu.list"
    requested = replace(REQUEST, source="mirror", mirror="http://reader:hunter2@mirror/repo.radeon.com")
    url = "http://********@mirror/repo.radeon.com/amdgpu/31.50/ubuntu"
    found = plan_driver(fresh, MI300X, RocmHostState(sources={path: f"deb {url} noble main"}), requested)
    assert str(found.halt).startswith(f"{path} names {url} with another key")


def test_a_kernel_that_came_up_with_its_own_driver():
    following = "6.12.57+deb13-amd64"
    host = working(kernel=following, next_kernel=following, modules=OWN)
    found = plan_driver(host, MI300X, replace(DRIVEN, disk=""), REQUEST)
    assert specs(found, host) == [f"linux-headers-{following}"]
    reason = f"the loaded driver is of kernel {following}, the installed one is 6.16.13.30300300"
    assert (found.reboot, found.unload) == ((reason,), ("amdgpu",))
    # The reason is the same once the module is built, so that no host is rebooted twice for it.
    assert plan_driver(host, MI300X, replace(DRIVEN, is_stale=True), REQUEST).reboot == (reason,)
    found = plan_driver(replace(host, modules={}), MI300X, replace(DRIVEN, disk=""), REQUEST)
    assert commands(found) == [f"dkms autoinstall -k {following}", "modprobe amdgpu"]


@pytest.mark.parametrize("modules", [{}, OWN, {"amdgpu": Module("6.16.13", "AB12")}])
@pytest.mark.parametrize("policy", ["retain", "install"])
def test_an_installation_that_was_cut_off_is_ended(modules, policy):
    left = {name: version for name, version in INSTALLED.items() if name != "amdgpu-dkms"}
    host = working(packages=left, unfinished=("amdgpu-dkms",), modules=modules, dkms=())
    requested = replace(REQUEST, minimum="", policy=policy)
    found = plan_driver(host, MI300X, DRIVEN, requested)
    assert specs(found, host) == DEB_DRIVER
    assert "amdgpu-dkms" in plan_driver(host, MI300X, DRIVEN, replace(requested, policy="halt")).halt
    assert plan_driver(host, MI300X, DRIVEN, replace(requested, source="none")).packages == ()
