# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's packages and repositories, by the names that its installation guides have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm import packages
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.releases import RELEASES
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import Host, StackError

UBUNTU = Host("ubuntu", "24.04", "noble", "x86_64", "6.8.0-50-generic", "6.8.0-50-generic", False)
DEBIAN = Host("debian", "12", "bookworm", "x86_64", "6.1.0-28-amd64", "6.1.0-28-amd64", False)
ROCKY = Host("rocky", "9.6", "", "x86_64", "5.14.0-570", "5.14.0-570", False)
CLASSIC, CORE = RELEASES["7.2.0"], RELEASES["10.0.0"]
THEROCK = next(release for name, release in RELEASES.items() if release.layout == "therock")
OFFERED = {
    "amdgpu-dkms": ["1:6.14.14.30100100-2193512.24.04", f"1:6.16.13.{CLASSIC.code}-2255209.24.04"],
    # Firmware of an older release with the higher number of its own.
    "amdgpu-dkms-firmware": [f"30.30.0.0.{CLASSIC.code}-2255209.24.04", "31.0.0.0.30100100-2193512.24.04"],
}


def test_driver_and_firmware_are_of_the_release_whatever_their_own_numbers():
    assert [(each.name, each.version) for each in packages.driver_packages(UBUNTU, CLASSIC, OFFERED)] == [
        ("amdgpu-dkms", OFFERED["amdgpu-dkms"][1]), ("amdgpu-dkms-firmware", OFFERED["amdgpu-dkms-firmware"][0]),
    ]  # fmt: skip


def test_before_the_repository_is_there_the_code_of_the_release_is_the_version():
    assert {each.version for each in packages.driver_packages(UBUNTU, CLASSIC, None)} == {f"*.{CLASSIC.code}-*"}
    wild = [each.version for each in packages.driver_packages(ROCKY, CLASSIC, None)]
    assert wild == [f"{CLASSIC.module}*", None]


def test_a_repository_with_other_releases_alone_is_refused():
    other = {"amdgpu-dkms": OFFERED["amdgpu-dkms"][:1]}
    with pytest.raises(StackError, match=r"no amdgpu-dkms of driver .*; it has 6\.14\.14\.30100100; correct rocm_vers"):
        packages.driver_packages(UBUNTU, CLASSIC, other)
    with pytest.raises(StackError, match="it has none"):
        packages.driver_packages(UBUNTU, CLASSIC, {})


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        (f"6.16.13.{CLASSIC.code}", True), ("6.16.13.30100100", False), (CLASSIC.module, True),
        (f"{CLASSIC.module}.1", True), (f"{CLASSIC.module}1", False), ("6.1", False),
    ],
)  # fmt: skip
def test_a_version_is_of_a_release_by_its_code_or_its_numbers(version, fits):
    assert packages.is_of(version, CLASSIC) == fits


def test_a_release_whose_module_is_unknown_has_no_version_of_its_own():
    assert not packages.is_of("6.16.13", replace(CLASSIC, module=""))


def test_the_installed_driver_is_that_of_its_package():
    assert (
        packages.on_disk(replace(UBUNTU, packages={"amdgpu-dkms": "1:6.16.13.30300300-22.24.04"})) == "6.16.13.30300300"
    )
    assert packages.on_disk(UBUNTU) is None


def test_modules_need_headers_and_on_ubuntu_the_extra_modules():
    names = [package.name for package in packages.kernel_extras(UBUNTU)]
    assert {"linux-headers-6.8.0-50-generic", "linux-modules-extra-6.8.0-50-generic", "dkms"} <= set(names)
    assert "kernel-headers-5.14.0-570" in [package.name for package in packages.kernel_extras(ROCKY)]
    assert not any("extra" in package.name for package in packages.kernel_extras(DEBIAN))


@pytest.mark.parametrize(
    ("host", "names"),
    [
        (DEBIAN, ["firmware-amd-graphics"]), (ROCKY, ["linux-firmware"]),
        (UBUNTU, ["linux-modules-extra-6.8.0-50-generic", "linux-firmware"]),
    ],
)  # fmt: skip
def test_the_kernels_own_driver_needs_firmware(host, names):
    assert [package.name for package in packages.own_packages(host)] == names


def test_user_space_has_the_names_of_its_layout():
    def names(release, userspace):
        return [each.name for each in packages.userspace_packages(release, userspace, ["gfx950", "gfx942", "gfx942"])]

    assert names(CLASSIC, "full") == ["rocm"] and "rocminfo" in names(CLASSIC, "runtime")
    assert names(CORE, "runtime") == [f"amdrocm{CORE.short}-gfx942", f"amdrocm{CORE.short}-gfx950"]
    assert names(CORE, "full")[0] == f"amdrocm-core-sdk{CORE.short}-gfx942"
    assert names(CORE, "none") == names(CLASSIC, "none") == []


def test_debian_has_a_user_space_of_its_own_and_others_do_not():
    assert "hipcc" in [package.name for package in packages.own_userspace_packages(DEBIAN, "full")]
    with pytest.raises(StackError, match=r"ubuntu 24\.04 has no ROCm of its own .* set rocm_userspace to none"):
        packages.own_userspace_packages(UBUNTU, "runtime")
    assert packages.own_userspace_packages(UBUNTU, "none") == []


@pytest.mark.parametrize("mirror", ["", "https://mirror/amd/"])
def test_repositories_lie_where_amds_guides_or_the_mirror_have_them(mirror):
    radeon, core, rock = (
        (mirror.rstrip("/"),) * 3 if mirror else (packages.RADEON, packages.CORE_HOST, packages.THEROCK_HOST)
    )
    driver = packages.driver_repository(UBUNTU, CLASSIC, mirror)
    assert driver.url == f"{radeon}/amdgpu/{CLASSIC.driver}/ubuntu" and driver.suites == ("noble",)
    assert driver.key.url == f"{radeon}/rocm/rocm.gpg.key"
    assert packages.driver_repository(ROCKY, CLASSIC, mirror).url == (
        f"{radeon}/amdgpu/{CLASSIC.driver}/el/9.6/main/x86_64/"
    )
    assert packages.userspace_repository(UBUNTU, CLASSIC, mirror).url == f"{radeon}/rocm/apt/7.2"
    patch = replace(CLASSIC, rocm="7.2.1")
    assert packages.userspace_repository(ROCKY, patch, mirror).url == f"{radeon}/rocm/el9/7.2.1/main"
    new = packages.userspace_repository(UBUNTU, CORE, mirror)
    assert new.url.startswith(f"{core}/rocm/core/packages/") and new.key.url == f"{core}/rocm/gpg/packages.gpg"
    between = packages.userspace_repository(ROCKY, THEROCK, mirror)
    assert between.url.startswith(f"{rock}/rocm/packages-multi-arch/") and between.url.endswith("/x86_64/")
    assert new.key.path != between.key.path


def test_packages_of_driver_and_user_space_are_told_apart():
    assert packages.is_driver("amdgpu-dkms-firmware") and not packages.is_driver("amdgpu-install")
    assert packages.is_userspace("amdrocm10.0-gfx942") and packages.is_userspace("rocm")
    assert not packages.is_userspace("rocminstall") and not packages.is_userspace("libamd-smi")
