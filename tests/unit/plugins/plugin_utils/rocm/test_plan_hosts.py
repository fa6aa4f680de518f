# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that have a driver of AMD's, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import Shown
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import plan

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
    SYSTEMS,
    WISH,
    asked,
    commands,
    specs,
    working,
)


@pytest.mark.parametrize("policy", ["retain", "install", "halt"])
@pytest.mark.parametrize("source", ["vendor", "none", "mirror"])
def test_a_driver_that_works_is_left_alone(policy, source):
    found = plan(working(), MI300X, DRIVEN, replace(WISH, policy=policy, source=source))
    assert found.halt is None
    assert (found.repositories, found.packages, found.remove_first, found.finish) == ((), (), (), ())
    assert (found.reboot, found.unload, found.notes) == ((), (), ())
    assert found.hold == ("amdgpu-dkms", "amdgpu-dkms-firmware")
    assert plan(working(), MI300X, DRIVEN, replace(WISH, hold=False)).hold == ()


@pytest.mark.parametrize(
    ("chips", "minimum", "who"),
    [
        (MI300X, "6.19", "release 0.33.0 needs 6.19 or newer"),
        (MI355X, "6.8.5", None),
    ],
)
def test_a_driver_below_what_is_needed(chips, minimum, who):
    halt = plan(working(), chips, DRIVEN, replace(WISH, minimum=minimum)).halt
    assert (halt is not None) == (who is not None)
    if who:
        assert halt == (
            f"driver 6.16.13.30300300 is on the host, {who}, and rocm_policy is retain with rocm_source vendor; set "
            "rocm_policy to install and a source to replace it, or choose a release that does with it"
        )


def test_a_driver_below_what_the_chip_needs():
    host = working(
        packages={**INSTALLED, "amdgpu-dkms": "1:6.12.12.60404-2202139.24.04"}, modules={"amdgpu": Module("6.12.12")}
    )
    halt = plan(host, MI355X, DRIVEN, replace(WISH, minimum="6.10.5")).halt
    assert halt.startswith("driver 6.12.12.60404 is on the host, gfx950 (mi355x) needs 6.14.14 or newer, and")


def test_a_driver_is_replaced_where_that_is_allowed():
    found = plan(working(), MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert specs(found, working()) == DEB_DRIVER
    assert found.replaces == "6.16.13"
    assert found.unload == ("amdgpu", "amdttm", "amdkcl")
    assert found.reboot == ("the loaded driver is 6.16.13, 31.50 (ROCm 10.0.0) takes its place",)
    assert commands(found) == ["update-initramfs -u -k all"]
    # Once nothing is loaded any more, nothing is in the way.
    found = plan(working(modules={}), MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert (found.reboot, commands(found)[-1]) == ((), "modprobe amdgpu")


def test_another_rocm_is_only_taken_where_that_is_allowed():
    retained = plan(working(), MI300X, DRIVEN, asked("10.0.0"))
    assert retained.packages == ()
    assert retained.notes == ("driver 6.16.13.30300300 is retained, rocm_version asks for 10.0.0 with driver 31.50",)
    halted = plan(working(), MI300X, DRIVEN, asked("10.0.0", policy="halt")).halt
    assert "rocm_version asks for ROCm 10.0.0 with driver 31.50, and rocm_policy is halt" in halted
    assert plan(working(), MI300X, DRIVEN, asked("7.2.2", policy="halt")).halt is None


def test_a_driver_that_came_in_no_package_is_not_overwritten():
    host = working(packages={})
    assert plan(host, MI300X, DRIVEN, WISH).halt is None
    found = plan(host, MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert (
        found.halt == "driver 6.16.13 did not come in the package amdgpu-dkms, which cannot replace it; remove it first"
    )


def test_a_driver_of_amds_where_the_kernels_own_is_wanted():
    assert plan(working(), MI300X, DRIVEN, replace(WISH, source="distro")).halt is None
    found = plan(working(), MI300X, DRIVEN, replace(WISH, source="distro", policy="install"))
    assert found.halt.startswith("driver 6.16.13.30300300 of AMD's is on the host and rocm_source is distro; remove")


def test_a_new_kernel_gets_headers_and_module_before_it_boots():
    following = "6.12.57+deb13-amd64"
    found = plan(working(next_kernel=following), MI300X, DRIVEN, WISH)
    assert specs(found, working()) == [f"linux-headers-{following}"]
    assert commands(found) == [f"dkms autoinstall -k {following}"]
    assert found.repositories == ()
    assert found.reboot == ()


def test_an_upgrade_that_waits_for_its_reboot():
    shown = replace(DRIVEN, disk="7.1.3.31500000", is_stale=True)
    found = plan(working(packages={**INSTALLED, "amdgpu-dkms": "1:7.1.3.31500000-1.24.04"}), MI300X, shown, WISH)
    assert found.packages == ()
    assert found.reboot == ("the loaded driver is 6.16.13, the installed one is 7.1.3.31500000",)
    assert found.unload == ("amdgpu", "amdttm", "amdkcl")


def test_an_install_that_was_cut_short_is_taken_up_again():
    found = plan(working(modules={}, dkms=(replace(BUILT[0], kernel="", state="added"),)), MI300X, DRIVEN, WISH)
    assert commands(found) == [f"dkms autoinstall -k {DEB_KERNEL}", "modprobe amdgpu"]
    half = {name: version for name, version in INSTALLED.items() if name != "amdgpu-dkms-firmware"}
    found = plan(working(packages=half), MI300X, DRIVEN, asked("10.0.0", policy="install"))
    assert specs(found, working()) == DEB_DRIVER


def test_the_vendors_own_files_for_apt():
    url = f"{RADEON}/amdgpu/31.50/ubuntu"
    fresh, path = SYSTEMS["ubuntu2404"][0], "/etc/apt/sources.list.d/amdgpu.list"
    shown = Shown(sources={path: f"deb [signed-by=/etc/apt/keyrings/rocm.gpg] {url} noble main"})
    assert plan(fresh, MI300X, shown, WISH).halt == (
        f"{path} names {url} with a key of its own, and apt refuses a repository that two files name with different "
        "keys; delete that file, the role writes another"
    )
    host = replace(fresh, packages={**fresh.packages, "amdgpu-install": "31.50.315000-1"})
    found = plan(host, MI300X, shown, WISH)
    assert (found.halt, found.remove_first) == (None, ("amdgpu-install",))
    older = Shown(sources={path: f"deb {RADEON}/amdgpu/30.30/ubuntu noble main"})
    assert plan(fresh, MI300X, older, WISH).halt is None


def test_a_kernel_that_came_up_with_its_own_driver():
    following = "6.12.57+deb13-amd64"
    host = working(kernel=following, next_kernel=following, modules=OWN)
    found = plan(host, MI300X, replace(DRIVEN, disk=""), WISH)
    assert specs(found, host) == [f"linux-headers-{following}"]
    reason = f"the loaded driver is of kernel {following}, the installed one is 6.16.13.30300300"
    assert (found.reboot, found.unload) == ((reason,), ("amdgpu",))
    # The reason is the same once the module is built, so that no host is rebooted twice for it.
    assert plan(host, MI300X, replace(DRIVEN, is_stale=True), WISH).reboot == (reason,)
    found = plan(replace(host, modules={}), MI300X, replace(DRIVEN, disk=""), WISH)
    assert commands(found) == [f"dkms autoinstall -k {following}", "modprobe amdgpu"]


@pytest.mark.parametrize("modules", [{}, OWN, {"amdgpu": Module("6.16.13", "AB12")}])
@pytest.mark.parametrize("policy", ["retain", "install"])
def test_an_installation_that_was_cut_off_is_ended(modules, policy):
    left = {name: version for name, version in INSTALLED.items() if name != "amdgpu-dkms"}
    host = working(packages=left, unfinished=("amdgpu-dkms",), modules=modules, dkms=())
    wish = replace(WISH, minimum="", policy=policy)
    found = plan(host, MI300X, DRIVEN, wish)
    assert specs(found, host) == DEB_DRIVER
    assert "amdgpu-dkms" in plan(host, MI300X, DRIVEN, replace(wish, policy="halt")).halt
    assert plan(host, MI300X, DRIVEN, replace(wish, source="none")).packages == ()
