# SPDX-License-Identifier: GPL-3.0-or-later
"""Every operating system x machine: the repositories, keys, packages and commands, word by word."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.chips import RocmHostState
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import RELEASES
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Module
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import minimum_of
from ansible_collections.baremetal.inference.plugins.plugin_utils.rocm.plan import plan_driver as _plan_driver

from tests.fakes.driver_plans import halting
from tests.fakes.rocm_systems import (
    APT_KEY,
    DEB_DRIVER,
    DRIVEN,
    EPEL,
    MACHINES,
    MI300X,
    MI355X,
    OWN,
    R9700,
    RADEON,
    RADEON_KEY,
    REQUEST,
    RPM_DRIVER,
    RPM_KEY,
    SHOWN,
    SYSTEMS,
    UBUNTU_KERNEL,
    asked,
    commands,
    machine,
    specs,
    system,
    working,
)

plan_driver = halting(_plan_driver)


@pytest.mark.parametrize("machine_name", MACHINES)
@pytest.mark.parametrize("system_name", SYSTEMS)
def test_a_fresh_host(system_name, machine_name):
    host, place, _tag, extras = SYSTEMS[system_name]
    found = plan_driver(host, MACHINES[machine_name][0], SHOWN, REQUEST)

    assert found.halt is None
    apt = host.manager == "apt"
    repositories = [(repo.name, repo.url, repo.key.url, repo.key.path, repo.suites) for repo in found.repositories]
    if apt:
        url = f"{RADEON}/amdgpu/31.50/ubuntu"
        assert repositories == [("baremetal-amdgpu-31.50", url, RADEON_KEY, APT_KEY, (place,))]
        assert found.repositories[0].components == ("main",)
    else:
        epel_key = f"RPM-GPG-KEY-EPEL-{host.major}"
        epel = (f"{EPEL}/{host.major}/Everything/x86_64/", f"{EPEL}/{epel_key}", f"/etc/pki/rpm-gpg/{epel_key}")
        url = f"{RADEON}/amdgpu/31.50/el/{place}/main/x86_64/"
        assert repositories == [("epel", *epel, ()), ("baremetal-amdgpu-31.50", url, RADEON_KEY, RPM_KEY, ())]
    assert specs(found, host) == [*extras, *(DEB_DRIVER if apt else RPM_DRIVER)]
    assert found.hold == ("amdgpu-dkms", "amdgpu-dkms-firmware")
    rebuild = "update-initramfs -u -k all" if apt else "dracut --force --regenerate-all"
    assert commands(found) == [rebuild, "modprobe amdgpu"]
    assert (found.groups, found.users, found.files, found.services) == ((), (), (), ())
    assert (found.replaces, found.unload, found.reboot) == ("", (), ())
    assert any("nothing can be served on mi100" in note for note in found.notes) == (machine_name == "mi100")


@pytest.mark.parametrize(
    ("rocm", "driver", "code", "module"),
    [
        ("6.4", "6.4", "60400", "6.12.12*"),
        ("6.4.4", "6.4.4", "60404", "6.12.12*"),
        ("7.0.0", "30.10", "30100000", "6.14.14*"),
        ("7.0.2", "30.10.2", "30100200", "6.14.14*"),
        ("7.1.1", "30.20.1", "30200100", "6.16.6*"),
        ("7.2", "30.30", "30300000", "6.16.13*"),
        ("7.2.3", "30.30.3", "30300300", "6.16.13*"),
        ("7.2.4", "30.30.4", "30300400", "6.16.13*"),
        ("7.13.0", "31.30", "31300000", "6.19*"),
        ("7.14.0", "31.40.1", "31400100", "6.19*"),
        ("10.0.0", "31.50", "31500000", "7.1.3*"),
        ("10.1.0", "31.60", "31600000", "7.1.9*"),
    ],
)
def test_the_driver_of_each_rocm(rocm, driver, code, module):
    requested = asked(rocm, minimum="")
    found = plan_driver(SYSTEMS["ubuntu2404"][0], MI300X, SHOWN, requested)
    assert [repo.url for repo in found.repositories] == [f"{RADEON}/amdgpu/{driver}/ubuntu"]
    packages = specs(found, SYSTEMS["ubuntu2404"][0])
    assert packages[-2:] == [f"amdgpu-dkms=*.{code}-*", f"amdgpu-dkms-firmware=*.{code}-*"]
    found = plan_driver(SYSTEMS["rhel9"][0], MI300X, SHOWN, requested)
    assert found.repositories[1].url == f"{RADEON}/amdgpu/{driver}/el/9.6/main/x86_64/" or driver == "6.4"
    assert specs(found, SYSTEMS["rhel9"][0])[-2:] == [f"amdgpu-dkms-{module}", "amdgpu-dkms-firmware"]


@pytest.mark.parametrize(
    ("rocm", "version", "directory"),
    [
        ("10.0.0", "9.4", "9.4"),
        ("10.0.0", "9.5", "9.4"),
        ("10.0.0", "9.2", "9.4"),
        ("10.0.0", "9.9", "9.8"),
        ("10.0.0", "9", "9.8"),
        ("10.0.0", "10.1", "10"),
        ("7.2.3", "10.1", "10.1"),
        ("7.2.3", "10.0", "10"),
        ("7.0.2", "10.0", "10"),
        ("6.4.0", "9.6", "9.5"),
    ],
)
def test_directories_of_minor_versions(rocm, version, directory):
    host = replace(SYSTEMS["rhel9"][0], version=version)
    found = plan_driver(host, MI300X, SHOWN, asked(rocm, minimum=""))
    assert f"/el/{directory}/main/x86_64/" in found.repositories[1].url


EARLY = ("6.4.0", "6.4.1", "6.4.2", "6.4.3", "6.4.4", "7.0.0", "7.0.1")


@pytest.mark.parametrize(
    ("rocm", "system_name", "supported"),
    [
        *((rocm, name, True) for rocm in RELEASES for name in ("debian12", "ubuntu2204", "ubuntu2404", "rhel9")),
        *((rocm, "ubuntu2604", rocm in ("7.13.0", "7.14.0", "10.0.0", "10.1.0")) for rocm in RELEASES),
        *((rocm, "debian13", rocm not in EARLY) for rocm in RELEASES),
        *((rocm, "rhel10", rocm not in EARLY) for rocm in RELEASES),
    ],
)
def test_which_rocm_supports_which_system(rocm, system_name, supported):
    found = plan_driver(SYSTEMS[system_name][0], MI300X, SHOWN, asked(rocm, minimum=""))
    assert (found.halt is None) == supported
    if not supported:
        assert "is not supported by AMD's driver" in found.halt
        assert "supported are Debian 12," in found.halt
        assert found.halt.endswith("; choose a newer rocm_version")


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        (system("sles", "15.7", "", "6.4"), "sles 15.7 is not supported by AMD's driver 31.50 (ROCm 10.0.0)"),
        (system("ubuntu", "24.10", "oracular", "6.11"), "ubuntu 24.10 is not supported by AMD's driver 31.50"),
        (replace(SYSTEMS["debian13"][0], architecture="aarch64"), "AMD has no driver for aarch64; expected x86_64"),
    ],
)
def test_what_amd_has_no_driver_for(host, sentence):
    assert plan_driver(host, MI300X, SHOWN, REQUEST).halt.startswith(sentence)


@pytest.mark.parametrize(
    ("chips", "rocm", "name", "first"),
    [
        (MI355X, "6.4.4", "gfx950 (mi355x)", "7.0.0"),
        (MI355X, "7.0.0", "", ""),
        (R9700, "6.4.0", "gfx1201 (r9700)", "6.4.1"),
        (R9700, "6.4.1", "", ""),
        (machine(("1002:1586", 1)), "7.0.1", "gfx1151 (strix_halo)", "7.0.2"),
        (MI300X, "6.4.0", "", ""),
    ],
)
def test_chips_that_a_rocm_does_not_know(chips, rocm, name, first):
    halt = plan_driver(SYSTEMS["ubuntu2404"][0], chips, SHOWN, asked(rocm, minimum="")).halt
    knows = f"ROCm {rocm} does not support {name}, {first} is the first that does"
    assert halt == (f'{knows}; set rocm_version to "{first}" or newer' if first else None)


def test_a_rocm_that_is_too_old_for_the_release():
    assert plan_driver(SYSTEMS["ubuntu2404"][0], MI300X, SHOWN, asked("6.4.4")).halt == (
        "release 0.33.0 needs driver 6.14.14 or newer, and ROCm 6.4.4 comes with 6.12.12; choose a newer rocm_version"
    )


def test_no_chip_and_no_rocm():
    host = SYSTEMS["debian13"][0]
    assert plan_driver(host, (), SHOWN, REQUEST).halt.startswith("no AMD chip is on PCI")
    assert plan_driver(host, MI300X, SHOWN, replace(REQUEST, rocm=None)).halt == (
        "release '0.33.0' names no version of ROCm, and a driver is to be installed; set rocm_version"
    )


def test_a_mirror_stands_for_the_vendors_hosts():
    requested = replace(
        REQUEST, source="mirror", mirror="http://mirror.example/amd/", epel="http://mirror.example/epel"
    )
    found = plan_driver(SYSTEMS["rocky9"][0], MI300X, SHOWN, requested)
    assert [repo.url for repo in found.repositories] == [
        "http://mirror.example/epel/9/Everything/x86_64/",
        "http://mirror.example/amd/amdgpu/31.50/el/9.8/main/x86_64/",
    ]
    assert found.repositories[1].key.url == "http://mirror.example/amd/rocm/rocm.gpg.key"


OFFERED = ["1:6.16.13.30300300-2255209.24.04", "1:7.1.3.31500000-2390945.24.04"]


def test_what_the_repository_offers():
    host = SYSTEMS["ubuntu2404"][0]
    firmware = "31.50.0.0.31500000-2390945.24.04"
    found = plan_driver(host, MI300X, SHOWN, REQUEST, {"amdgpu-dkms": OFFERED, "amdgpu-dkms-firmware": [firmware]})
    assert specs(found, host)[-2:] == [f"amdgpu-dkms={OFFERED[1]}", f"amdgpu-dkms-firmware={firmware}"]
    host = SYSTEMS["rhel9"][0]
    found = plan_driver(
        host, MI300X, SHOWN, REQUEST, {"amdgpu-dkms": ["6.16.13", "7.1.3"], "amdgpu-dkms-firmware": ["7.1.3"]}
    )
    assert specs(found, host)[-2:] == ["amdgpu-dkms-7.1.3", "amdgpu-dkms-firmware-7.1.3"]


@pytest.mark.parametrize(
    ("offered", "has"),
    [(OFFERED[:1], "6.16.13.30300300"), ([], "none"), (["1:7.1.3.31500100-1.24.04"], "7.1.3.31500100")],
)
def test_a_driver_that_is_not_in_the_repository(offered, has):
    assert plan_driver(SYSTEMS["ubuntu2404"][0], MI300X, SHOWN, REQUEST, {"amdgpu-dkms": offered}).halt == (
        f"the repository has no amdgpu-dkms of driver 31.50 (ROCm 10.0.0); it has {has}; correct rocm_version or "
        "rocm_mirror"
    )


@pytest.mark.parametrize("policy", ["retain", "install"])
def test_the_kernels_own_driver_makes_room(policy):
    host = replace(SYSTEMS["ubuntu2404"][0], modules=OWN)
    found = plan_driver(host, MI300X, replace(DRIVEN, disk=""), replace(REQUEST, policy=policy))
    assert specs(found, host)[-2:] == DEB_DRIVER
    assert (found.replaces, found.unload) == (f"of kernel {UBUNTU_KERNEL}", ("amdgpu",))
    assert found.reboot == (f"the loaded driver is of kernel {UBUNTU_KERNEL}, 31.50 (ROCm 10.0.0) takes its place",)
    assert commands(found) == ["update-initramfs -u -k all"]


@pytest.mark.parametrize(
    ("shown", "requested", "is_kept"),
    [
        (DRIVEN, replace(REQUEST, minimum=""), True),
        (DRIVEN, replace(REQUEST, minimum="", policy="halt"), True),
        (DRIVEN, replace(REQUEST, minimum="", policy="install"), False),
        (replace(DRIVEN, driven=DRIVEN.driven[1:]), replace(REQUEST, minimum=""), False),
        (DRIVEN, replace(REQUEST, source="none"), True),
        (DRIVEN, replace(REQUEST, source="distro"), True),
    ],
)
def test_the_kernels_own_driver_where_it_does(shown, requested, is_kept):
    host = replace(SYSTEMS["ubuntu2404"][0], modules=OWN)
    found = plan_driver(host, MI300X, shown, requested)
    assert found.halt is None
    assert ("amdgpu-dkms" not in [package.name for package in found.packages]) == is_kept
    assert any("the kernel's own amdgpu is used, which has no version" in note for note in found.notes) == is_kept
    assert (found.reboot == ()) == is_kept


def test_the_kernels_own_driver_is_not_proven_against_a_minimum():
    host = replace(SYSTEMS["ubuntu2404"][0], modules=OWN)
    assert plan_driver(host, MI300X, DRIVEN, replace(REQUEST, source="none")).notes == (
        "the kernel's own amdgpu is used, which has no version: whether it works with release 0.33.0, which needs "
        "6.14.14 of AMD's, was not verified",
    )
    halted = plan_driver(host, MI300X, DRIVEN, replace(REQUEST, policy="halt")).halt
    assert halted.startswith("rocm_policy is halt, and a driver is to be installed: install linux-headers-")


@pytest.mark.parametrize(
    ("system_name", "packages", "repositories"),
    [
        ("debian12", ["firmware-amd-graphics"], ["debian-non-free-firmware"]),
        ("debian13", ["firmware-amd-graphics"], ["debian-non-free-firmware"]),
        ("ubuntu2404", [f"linux-modules-extra-{UBUNTU_KERNEL}", "linux-firmware"], []),
        ("rhel9", ["linux-firmware"], []),
    ],
)
def test_the_distributions_own(system_name, packages, repositories):
    host = SYSTEMS[system_name][0]
    found = plan_driver(host, MI300X, SHOWN, replace(REQUEST, source="distro"))
    assert specs(found, host) == packages
    assert [repo.name for repo in found.repositories] == repositories
    assert commands(found) == ["modprobe amdgpu"]
    assert found.hold == ()
    if repositories:
        assert found.repositories[0].components == ("non-free-firmware",)


def test_a_driver_of_the_kernels_that_came_up_before_its_firmware():
    requested = replace(REQUEST, source="distro")
    host = replace(SYSTEMS["debian13"][0], modules=OWN)
    found = plan_driver(host, MI300X, replace(DRIVEN, driven=()), requested)
    assert found.reboot == ("the loaded driver has come up without the firmware that its chips need",)
    assert found.unload == ("amdgpu",)
    assert plan_driver(host, MI300X, DRIVEN, requested).reboot == ()
    host = replace(host, packages={**host.packages, "firmware-amd-graphics": "20250410-2"})
    assert plan_driver(host, MI300X, replace(DRIVEN, driven=()), requested).reboot == ()


def test_a_kernel_whose_own_driver_does_not_know_the_chip():
    host = replace(SYSTEMS["debian12"][0], kernel="6.1.0-28-amd64", next_kernel="6.1.0-31-amd64")
    assert plan_driver(host, R9700, SHOWN, replace(REQUEST, source="distro")).halt == (
        "the driver of kernel 6.1.0-31-amd64 does not support gfx1201 (r9700), 6.12 is the first that does; set "
        "rocm_source to vendor, or boot a newer kernel"
    )
    assert plan_driver(SYSTEMS["rhel9"][0], R9700, SHOWN, replace(REQUEST, source="distro")).halt is None
    # It has it already.
    shown = RocmHostState(driven=tuple(chip.address for chip in R9700), has_module=True)
    assert plan_driver(replace(host, modules=OWN), R9700, shown, replace(REQUEST, source="distro")).halt is None


def test_nothing_on_the_host_and_nothing_to_install():
    host = SYSTEMS["debian13"][0]
    requested = replace(REQUEST, source="none")
    assert plan_driver(host, MI300X, SHOWN, requested).halt == (
        "no amdgpu driver is on the host and rocm_source is none; install one, or set rocm_source"
    )
    assert commands(plan_driver(host, MI300X, RocmHostState(has_module=True), requested)) == ["modprobe amdgpu"]


@pytest.mark.parametrize(("enrolled", "halts"), [(True, False), (False, True), (None, True)])
def test_secure_boot_needs_an_enrolled_key_before_anything_changes(enrolled, halts):
    host = replace(SYSTEMS["ubuntu2404"][0], secure_boot=True, signing_key_enrolled=enrolled)
    assert (plan_driver(host, MI300X, SHOWN, REQUEST).halt is not None) == halts
    assert plan_driver(replace(working(), secure_boot=True), MI300X, DRIVEN, REQUEST).halt is None


def test_a_plan_is_plain_data():
    found = plan_driver(SYSTEMS["rhel9"][0], MI300X, SHOWN, REQUEST)
    assert found.repositories[1].key.url == RADEON_KEY


@pytest.mark.parametrize(
    ("chips", "minimum", "expected"),
    [
        (MI300X, "6.14.14", ("6.14.14", "release 0.33.0")),
        (R9700, "6.10.5", ("6.12.12", "gfx1201 (r9700)")),
        (R9700, "6.14.14", ("6.14.14", "release 0.33.0")),
        ((), "", ("", "")),
    ],
)
def test_the_strictest_of_chips_and_release_decides(chips, minimum, expected):
    assert minimum_of(chips, replace(REQUEST, minimum=minimum)) == expected
    assert minimum_of(chips, replace(REQUEST, minimum=minimum, source="distro")) == ("", "")


def test_a_driver_of_amds_is_retained_where_the_site_asks_for_the_distributions_own():
    found = plan_driver(working(), MI300X, DRIVEN, replace(REQUEST, source="distro", policy="retain"))
    assert (found.halt, found.packages, found.repositories, found.reboot) == (None, (), (), ())
    assert not any("has no version" in note for note in found.notes)


@pytest.mark.parametrize(("source", "is_completed"), [("vendor", True), ("mirror", True), ("none", False)])
def test_an_interrupted_installation_is_completed_from_a_source_of_amds(source, is_completed):
    host = replace(SYSTEMS["ubuntu2404"][0], modules=OWN, unfinished=("amdgpu-dkms",))
    mirror = "https://mirror.example" if source == "mirror" else ""
    found = plan_driver(host, MI300X, DRIVEN, replace(REQUEST, source=source, mirror=mirror, minimum=""))
    assert ("amdgpu-dkms" in [package.name for package in found.packages]) == is_completed
    if not is_completed:
        assert found.halt is None and any("the kernel's own amdgpu is used" in note for note in found.notes)


def test_a_retained_driver_of_amds_lacks_no_firmware_of_the_distributions():
    # A chip is not bound, and a header package is missing: neither is a reason to replace the loaded driver.
    packages = {name: version for name, version in working().packages.items() if name != "linux-headers-amd64"}
    found = plan_driver(working(packages=packages), MI300X, replace(DRIVEN, driven=()), replace(REQUEST, minimum=""))
    assert [package.name for package in found.packages] == ["linux-headers-amd64"]
    assert (found.reboot, found.unload, found.replaces) == ((), (), "")


def test_without_a_source_no_policy_installs():
    old = working(modules={"amdgpu": Module("6.10.5", "AB12")})
    request = asked("10.0.0", source="none", policy="install")
    halted = plan_driver(old, MI300X, replace(DRIVEN, disk="6.10.5"), request).halt
    assert "rocm_policy is install with rocm_source none" in halted


@pytest.mark.parametrize("has_module", [True, False])
def test_a_loaded_module_is_a_driver_whatever_is_on_the_disk(has_module):
    host = replace(SYSTEMS["debian13"][0], modules=OWN)
    shown = replace(DRIVEN, has_module=has_module)
    assert plan_driver(host, MI300X, shown, replace(REQUEST, source="none")).halt is None


def test_a_system_that_a_rocm_does_not_support_is_named_before_what_can_be_changed_on_it():
    host = replace(SYSTEMS["ubuntu2604"][0], secure_boot=True, signing_key_enrolled=False)
    assert "Secure Boot" in plan_driver(host, MI300X, SHOWN, REQUEST).halt
    assert "ubuntu 26.04" in plan_driver(host, MI300X, SHOWN, asked("6.4.0", minimum="")).halt.lower()


def test_chips_that_are_driven_without_a_loaded_module_still_need_a_driver():
    # The facts contradict each other: the kernel's own driver counts only where it is loaded.
    found = plan_driver(SYSTEMS["ubuntu2404"][0], MI300X, replace(DRIVEN, disk=""), replace(REQUEST, minimum=""))
    assert "amdgpu-dkms" in [package.name for package in found.packages]
