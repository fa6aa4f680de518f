# SPDX-License-Identifier: GPL-3.0-or-later
"""What every vendor's driver needs of a distribution: headers, archives, a kernel that accepts its modules."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    DkmsBuild,
    Host,
    Package,
    StackError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.packages import (
    build_missing,
    check_secure_boot,
    debian_archive,
    debian_security,
    epel,
    exact,
    header_packages,
    is_installed,
    rebuild_initramfs,
)

DEBIAN = {"distribution": "debian", "version": "12", "codename": "bookworm", "architecture": "x86_64"}
RHEL = {"distribution": "rhel", "version": "9.6", "codename": "", "architecture": "x86_64"}


def host(base=None, kernel="6.1.0-28-amd64", following=None, **more):
    return Host(**{**(base or DEBIAN), "kernel": kernel, "next_kernel": following or kernel, **more})


def names(found):
    return [package.name for package in found]


def test_the_running_kernel_and_the_next_one_get_their_headers_and_so_do_later_ones():
    found = host(following="6.1.0-30-amd64", packages={"linux-image-amd64": "6.1", "linux-image-6.1.0-28-amd64": "6.1"})
    assert names(header_packages(found)) == [
        "linux-headers-6.1.0-28-amd64", "linux-headers-6.1.0-30-amd64", "linux-headers-amd64", "dkms",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "kernel", "expected"),
    [
        (RHEL, "5.14.0-1.el9", ["kernel-devel-5.14.0-1.el9", "kernel-devel-matched-5.14.0-1.el9"]),
        # Oracle's own kernels have headers of their own, and nothing that follows them.
        ({**RHEL, "distribution": "ol"}, "6.12.0-1.el9uek", ["kernel-uek-devel-6.12.0-1.el9uek"]),
        ({**RHEL, "distribution": "openeuler"}, "6.6.0-1.oe", ["kernel-devel-6.6.0-1.oe"]),
    ],
)
def test_headers_of_systems_with_dnf(base, kernel, expected):
    assert names(header_packages(host(base, kernel))) == [*expected, "dkms"]


@pytest.mark.parametrize(
    ("there", "wanted", "installed"),
    [
        ("580.95.05-1", "580.95.05-*", True),
        ("3:580.95.05-1.el9", "580.95.05", True),
        ("3:580.95.05-1", "580.95.05-*", True),
        ("580.95.05-1", "580.95-*", False),
        ("580.95.050-1", "580.95.05-*", False),
        ("580.95.05-1", None, True),
        (None, None, False),
        (None, "580.95.05", False),
    ],
)
def test_a_package_is_installed_in_the_requested_version_or_not(there, wanted, installed):
    packages = {} if there is None else {"driver": there}
    assert is_installed(host(packages=packages), Package("driver", wanted)) is installed


def test_a_version_with_any_revision_of_its_packages():
    assert (exact("580.95.05", "apt"), exact("580.95.05", "dnf")) == ("580.95.05-*", "580.95.05")


def test_a_mirror_takes_the_place_of_an_archive_and_not_of_its_key():
    own, ours = (debian_archive(host(), mirror, "more", ("non-free",)) for mirror in ("", "http://mirror/debian"))
    assert own.url == "http://deb.debian.org/debian" and ours.url == "http://mirror/debian"
    assert own.key == ours.key and own.suites == ("bookworm", "bookworm-updates")
    security = debian_security(host(), "http://mirror/debian/", "more", ("non-free",))
    assert (security.url, security.suites) == ("http://mirror/debian-security", ("bookworm-security",))
    found = epel(host(RHEL), "http://mirror/epel/")
    assert found.url == "http://mirror/epel/9/Everything/x86_64/"
    assert found.key.url == "http://mirror/epel/RPM-GPG-KEY-EPEL-9"


def test_a_kernel_that_would_refuse_the_driver_is_an_error_before_it_is_installed():
    for found in (host(), host(secure_boot=False), host(secure_boot=True, signing_key_enrolled=True)):
        check_secure_boot(found)
    with pytest.raises(StackError, match=r"run 'mokutil --import /var/lib/dkms/mok\.pub', reboot .*, or switch"):
        check_secure_boot(host(secure_boot=True))
    ubuntu = host({**DEBIAN, "distribution": "ubuntu"}, secure_boot=True, signing_key_enrolled=False)
    with pytest.raises(
        StackError, match=r"shim-signed.* install the modules that ubuntu 12 signed \(linux-modules-x\)"
    ):
        check_secure_boot(ubuntu, "linux-modules-x")


def test_only_kernels_without_a_module_are_built_for():
    builds = (
        DkmsBuild("nvidia", "580", "6.1.0-28-amd64", "installed"),
        DkmsBuild("other", "1", "6.1.0-30-amd64", "installed"),
    )
    found = host(following="6.1.0-30-amd64", dkms=builds)
    (command,) = build_missing(found, "nvidia", "nvidia-kernel-dkms")
    assert command.argv == ("dkms", "autoinstall", "-k", "6.1.0-30-amd64")
    assert build_missing(host(dkms=builds), "nvidia", "nvidia-kernel-dkms") == []
    # Built and not installed is none.
    half = (DkmsBuild("nvidia", "580", "6.1.0-28-amd64", "built"),)
    assert build_missing(host(dkms=half), "nvidia", "x")[0].argv[-1] == "6.1.0-28-amd64"


@pytest.mark.parametrize(
    ("base", "argv"),
    [
        (DEBIAN, ("dpkg-reconfigure", "--frontend=noninteractive", "nvidia-kernel-dkms")),
        (RHEL, ("dnf", "-y", "reinstall", "nvidia-kernel-dkms")),
    ],
)
def test_a_module_that_dkms_has_forgotten_is_registered_again(base, argv):
    (command,) = build_missing(host(base), "nvidia", "nvidia-kernel-dkms")
    assert command.argv == argv


def test_the_initramfs_of_all_kernels_is_rebuilt():
    assert rebuild_initramfs(host(), "why").argv == ("update-initramfs", "-u", "-k", "all")
    assert rebuild_initramfs(host(RHEL), "why").argv[0] == "dracut"
