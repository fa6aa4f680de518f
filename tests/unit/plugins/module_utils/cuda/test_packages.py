# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's packages and repositories, by the names that its and the distributions' repositories list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda import packages
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.packages import Driver
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Host, StackError


def host(distribution, version, arch="x86_64", **installed):
    return Host(distribution, version, "", arch, "6.8.0", "6.8.0", False, packages=installed)


UBUNTU, DEBIAN = host("ubuntu", "24.04"), host("debian", "13")
EL9, EL10 = host("rocky", "9.6"), host("rhel", "10.0")
OPEN = Driver(580, "580.95.05", "open", "580")
MANAGER, NVLINK5 = ["nvidia-fabricmanager", "libnvidia-nscq"], ["nvlsm", "infiniband-diags"]
CLOSED = replace(OPEN, flavour="proprietary")


def names(found):
    return [package.name for package in found]


@pytest.mark.parametrize(
    ("system", "tag"), [(UBUNTU, "ubuntu2404"), (DEBIAN, "debian13"), (EL9, "rhel9"), (EL10, "rhel10")]
)
def test_each_system_has_its_directory_in_nvidias_repository(system, tag):
    assert packages.platform(system) == tag
    repository = packages.repositories(system, "vendor", "", "")[-1]
    assert repository.url == f"{packages.VENDOR_URL}/{tag}/x86_64/"
    assert repository.key.url == f"{repository.url}{packages.KEYS[tag]}.pub"
    arm = packages.repositories(replace(system, architecture="aarch64"), "mirror", "https://mirror/cuda/", "")[-1]
    assert arm.url == f"https://mirror/cuda/{tag}/sbsa/"


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (host("ubuntu", "20.04"), "ubuntu 20.04 is not supported for NVIDIA's driver"),
        (host("rhel", "8.10"), "is not supported"), (host("ubuntu", "24.04", "riscv64"), "no driver for riscv64"),
    ],
)  # fmt: skip
def test_other_systems_are_refused(system, reason):
    with pytest.raises(StackError, match=reason):
        packages.platform(system)


def test_dkms_comes_from_epel_until_it_is_installed():
    assert len(packages.repositories(EL9, "vendor", "", "")) == 2
    assert len(packages.repositories(host("rocky", "9.6", dkms="3"), "vendor", "", "")) == 1


def test_a_distribution_has_a_driver_of_its_own_or_is_told_what_to_set():
    assert packages.repositories(UBUNTU, "distro", "", "") == ()
    assert len(packages.repositories(DEBIAN, "distro", "", "")) == 2
    with pytest.raises(StackError, match=r"rocky 9\.6 has no NVIDIA driver of its own; set cuda_source to vendor"):
        packages.repositories(EL9, "distro", "", "")


@pytest.mark.parametrize(
    ("system", "source", "driver", "name"),
    [
        (EL9, "vendor", OPEN, "kmod-nvidia-open-dkms"), (EL9, "vendor", CLOSED, "kmod-nvidia-latest-dkms"),
        (UBUNTU, "vendor", OPEN, "nvidia-dkms-580-open"),
        (UBUNTU, "vendor", replace(OPEN, branch=590), "nvidia-dkms-open"),
        (UBUNTU, "distro", replace(CLOSED, branch=590), "nvidia-dkms-590-server"),
        (UBUNTU, "distro", OPEN, "nvidia-dkms-580-server-open"),
        (DEBIAN, "distro", OPEN, "nvidia-open-kernel-dkms"), (DEBIAN, "vendor", OPEN, "nvidia-kernel-open-dkms"),
        (DEBIAN, "vendor", CLOSED, "nvidia-kernel-dkms"),
    ],
)  # fmt: skip
def test_the_package_with_the_module_is_named_by_system_source_and_branch(system, source, driver, name):
    assert packages.kernel_package(system, source, driver) == name
    assert packages.is_kernel(name) and packages.is_driver(name)


@pytest.mark.parametrize(
    ("system", "source", "driver", "rest"),
    [
        (UBUNTU, "vendor", OPEN, ["nvidia-driver-pinning-580", "nvidia-dkms-580-open", "nvidia-open"]),
        (
            DEBIAN, "vendor", OPEN,
            ["nvidia-driver-pinning-580", "nvidia-kernel-open-dkms", "nvidia-open", "nvidia-persistenced"],
        ),
        (UBUNTU, "vendor", replace(CLOSED, branch=570), ["nvidia-dkms-570", "cuda-drivers-570"]),
        (
            UBUNTU, "distro", OPEN,
            ["nvidia-dkms-580-server-open", "nvidia-headless-580-server-open", "nvidia-utils-580-server"],
        ),
        (EL10, "vendor", OPEN, ["kmod-nvidia-open-dkms", "nvidia-open"]),
        (
            EL9, "vendor", CLOSED,
            [
                "kmod-nvidia-latest-dkms", "nvidia-driver-cuda", "nvidia-driver-libs", "libnvidia-ml",
                "nvidia-persistenced",
            ],
        ),
    ],
)  # fmt: skip
def test_the_package_that_pins_the_branch_comes_first(system, source, driver, rest):
    assert names(packages.driver_packages(system, source, driver)) == rest


def test_a_driver_without_a_version_is_any_of_its_branch():
    assert replace(OPEN, version=None).version_for("apt") == "580.*"
    assert (OPEN.version_for("dnf"), OPEN.version_for("apt")) == ("580.95.05", "580.95.05-*")


@pytest.mark.parametrize(
    ("system", "driver", "pinned"),
    [
        (EL9, OPEN, "nvidia-driver:580-open"), (EL9, CLOSED, "nvidia-driver:580-dkms"), (EL10, OPEN, "*nvidia*580*"),
    ],
)  # fmt: skip
def test_dnf_is_kept_on_the_branch_before_it_installs(system, driver, pinned):
    commands = packages.preparation(system, "vendor", driver)
    assert commands[0].argv[-1] == "python3-dnf-plugin-versionlock" and commands[-1].argv[-1] == pinned
    assert packages.preparation(system, "none", driver) == packages.preparation(UBUNTU, "vendor", driver) == ()


@pytest.mark.parametrize(
    ("installed", "asked", "expected"),
    [
        ((), "580", []), (("580",), "580", []), (("580.95.05",), "", []),
        (("590",), "580", ["nvidia-driver-pinning-580"]), (("590",), "580.95.05", ["nvidia-driver-pinning-580.95.05"]),
        (("590",), "570", ["nvidia-driver-pinning-580"]), (("58",), "", ["nvidia-driver-pinning-580"]),
    ],
)  # fmt: skip
def test_a_driver_that_stays_is_pinned_again_after_a_failed_upgrade(installed, asked, expected):
    found = host("ubuntu", "24.04", **{f"nvidia-driver-pinning-{pin}": "1" for pin in installed})
    assert names(packages.pinning_packages(found, "vendor", "580.95.05", asked)) == expected
    assert packages.pinning_packages(found, "distro", "580.95.05", asked) == []


@pytest.mark.parametrize(
    ("system", "source", "version", "nvlink5", "expected"),
    [
        (UBUNTU, "vendor", "580.95.05", False, ["nvidia-fabricmanager", "libnvidia-nscq"]),
        (UBUNTU, "vendor", "570.*", False, ["nvidia-fabricmanager-570", "libnvidia-nscq-570"]),
        (UBUNTU, "distro", "580.95.05", False, ["nvidia-fabricmanager-580", "libnvidia-nscq-580"]),
        (EL9, "vendor", "570.86.15", False, ["nvidia-fabric-manager", "libnvidia-nscq-570"]),
        (EL9, "vendor", "580.95.05", True, [*MANAGER, "libnvsdm", *NVLINK5]),
        (replace(UBUNTU, architecture="aarch64"), "vendor", "580.95.05", True, [*MANAGER, *NVLINK5]),
    ],
)  # fmt: skip
def test_the_fabric_manager_is_of_the_drivers_version(system, source, version, nvlink5, expected):
    found = packages.fabric_packages(system, source, version, nvlink5)
    assert names(found) == expected and packages.is_fabric(expected[0])
    assert version.rstrip("*") in str(found[0].version) and (not nvlink5 or found[-1].version is None)


def test_debians_own_driver_has_no_fabric_manager():
    with pytest.raises(StackError, match=r"the fabric manager, which debian 13 does not have of its own"):
        packages.fabric_packages(DEBIAN, "distro", "550.163.01", False)


@pytest.mark.parametrize(
    "name",
    ["nvidia-container-toolkit", "libnvidia-container1", "nvidia-driver-pinning-580", "bash", "nvidia-smi-exporter"],
)
def test_packages_beside_the_driver_are_not_held_with_it(name):
    assert not packages.is_driver(name) and not packages.is_kernel(name)


def test_the_version_on_disk_is_the_modules_or_that_of_the_tools_beside_modules_built_elsewhere():
    built = {"nvidia-dkms-580-open": "580.95.05-0ubuntu1", "nvidia-utils-580-server": "580.82.07-0ubuntu1"}
    assert packages.on_disk(host("ubuntu", "24.04", **built)) == "580.95.05"
    prebuilt = {
        "linux-modules-nvidia-580-server-generic": "6.8.0-50.51",
        "nvidia-utils-580-server": "580.82.07-0ubuntu1",
    }
    found = host("ubuntu", "24.04", **prebuilt)
    assert packages.on_disk(found) == "580.82.07" and packages.kernel_packages(found) == {}
    assert packages.prebuilt_packages(found) == ["linux-modules-nvidia-580-server-generic"]
    assert packages.signed_package(found, OPEN) == "linux-modules-nvidia-580-server-open-generic"
    assert packages.signed_package(DEBIAN, OPEN) == "" and packages.on_disk(UBUNTU) is None
