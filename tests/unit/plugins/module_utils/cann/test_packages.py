# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's packages, by the names that its repositories list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann import packages
from ansible_collections.baremetal.inference.plugins.module_utils.cann.chips import CHIPS
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Host, Package, StackError

UBUNTU = Host("ubuntu", "22.04", "jammy", "aarch64", "5.15.0-25-generic", "5.15.0-25-generic", False)
EULER = Host("openeuler", "24.03SP3", "", "aarch64", "6.6.0-144", "6.6.0-145", False)


@pytest.mark.parametrize("host", [UBUNTU, EULER, replace(EULER, distribution="kylin", version="V10")])
def test_supported_systems_pass(host):
    packages.platform(host)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (replace(UBUNTU, version="20.04"), "is not supported for Huawei's driver"),
        (replace(EULER, version="20.03"), "is not supported for Huawei's driver"),
        (replace(EULER, distribution="rocky", version="9.4"), "is not supported for Huawei's driver"),
        (replace(UBUNTU, architecture="riscv64"), "no driver for riscv64; expected x86_64 or aarch64"),
    ],
)
def test_other_systems_are_refused(host, reason):
    with pytest.raises(StackError, match=reason):
        packages.platform(host)


def test_apt_needs_the_key_that_is_only_in_a_package_until_it_is_installed():
    found = packages.repository(UBUNTU, "", "", with_cann=False)
    assert (found.url, found.suites) == (packages.APT_URL, ("hdk",))
    assert found.key.url == f"{packages.APT_URL}/cann-keyring_1.0.0_all.deb"
    installed = replace(UBUNTU, packages={"cann-keyring": "1.0.0"})
    assert packages.repository(installed, "", "", with_cann=True).key.url == ""
    assert packages.repository(UBUNTU, "", "", with_cann=True).suites == ("hdk", "cann")


def test_a_mirror_has_the_same_layout_and_the_site_may_have_a_key():
    found = packages.repository(UBUNTU, "https://mirror/cann/", "https://mirror/key.asc", with_cann=True)
    assert (found.url, found.key.url, found.key.path) == (
        "https://mirror/cann", "https://mirror/key.asc", "/etc/apt/keyrings/cann-site.asc",
    )  # fmt: skip
    rpm = packages.repository(EULER, "https://mirror/cann/", "", with_cann=True)
    assert (rpm.url, rpm.key.url) == ("https://mirror/cann/aarch64/", "https://mirror/cann/RPM-GPG-KEY-CANN")


def test_modules_are_built_for_the_running_and_the_next_kernel():
    names = {package.name for package in packages.build_packages(EULER)}
    built = {f"kernel-devel-6.6.0-{number}" for number in (144, 145)}
    assert names == {"make", "gcc", "net-tools", "kernel-headers-6.6.0-144", *built, "dkms"}
    assert not any("kernel-headers" in package.name for package in packages.build_packages(UBUNTU))


@pytest.mark.parametrize(
    ("component", "deb", "rpm"),
    [
        ("driver", Package("ascend910b-driver", "26.0.rc1-beta"), Package("Ascend910B-driver", "26.0.rc1_beta")),
        ("firmware", Package("ascend910b-firmware", "26.0.rc1-beta"), Package("Ascend910B-firmware", "26.0.rc1_beta")),
        ("toolkit", Package("ascend-cann-toolkit", "26.0.RC1-beta"), Package("Ascend-cann-toolkit", "26.0.RC1_beta")),
        ("ops", Package("ascend-cann-910b-ops", "26.0.RC1-beta"), Package("Ascend-cann-910b-ops", "26.0.RC1_beta")),
        ("nnal", Package("ascend-cann-nnal", "26.0.RC1-beta"), Package("Ascend-cann-nnal", "26.0.RC1_beta")),
    ],
)  # fmt: skip
def test_the_package_managers_spell_names_and_versions_differently(component, deb, rpm):
    chip = CHIPS["ascend_a2"]
    assert packages.package(UBUNTU, chip, component, "26.0.RC1-beta") == deb
    assert packages.package(EULER, chip, component, "26.0.RC1-beta") == rpm


def test_a_version_is_installed_in_the_spelling_of_the_repository():
    wanted = Package("ascend910b-driver", "26.0.rc1")
    assert packages.resolved(wanted, ["25.2.0", "26.0.RC1"]).version == "26.0.RC1"
    assert packages.resolved(wanted, ["1:26.0.rc1-2"]).version == "1:26.0.rc1-2"
    with pytest.raises(
        StackError, match=r"no ascend910b-driver 26\.0\.rc1; it has 24\.1, 25\.2\.0; correct the version"
    ):
        packages.resolved(wanted, ["25.2.0", "24.1", "25.2.0"])
    with pytest.raises(StackError, match="it has none"):
        packages.resolved(wanted, [])


def test_packages_of_driver_and_cann_are_ours_and_others_are_not():
    assert packages.is_driver("Atlas-A3-hdk-npu-firmware") and not packages.is_driver("ascend-cann-toolkit")
    assert packages.is_ours("Ascend-cann-910b-ops") and not packages.is_ours("python3-ascend-cann-x")
    host = replace(UBUNTU, packages={"ascend910b-driver": "26.0", "ascend-cann-toolkit": "9.0", "bash": "5"})
    assert packages.hdk_packages(host) == {"ascend910b-driver": "26.0"}
