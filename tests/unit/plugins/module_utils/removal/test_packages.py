# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages belong to a driver or an engine."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.module_utils.removal.packages import (
    afterwards,
    packages_of,
    removal_command,
)

INSTALLED = ["bash", "nvidia-kernel-dkms", "libnvidia-ml1", "nvidia-driver-pinning-580", "nvidia-container-toolkit",
             "amdgpu-dkms", "rocm-core", "linux-firmware", "docker.io", "podman", "containerd"]  # fmt: skip


def test_a_driver_is_of_any_vendor_and_leaves_the_firmware_of_the_distribution():
    found = packages_of("driver", INSTALLED)
    assert {"nvidia-kernel-dkms", "libnvidia-ml1", "nvidia-driver-pinning-580", "amdgpu-dkms", "rocm-core"} <= set(
        found
    )
    assert not {"bash", "linux-firmware", "nvidia-container-toolkit", "docker.io"} & set(found)


def test_an_engine_goes_with_its_toolkit():
    assert packages_of("container_engine", INSTALLED) == ("docker.io", "nvidia-container-toolkit", "podman")


def test_commands_that_take_no_other_package_along():
    assert removal_command("apt", ["a", "b"]) == ["dpkg", "--force-hold", "--purge", "a", "b"]
    assert removal_command("dnf", ["a"], dry=True) == ["rpm", "--test", "--erase", "a"]


def test_the_copies_of_removed_settings_are_made_again():
    gone = ["/etc/modprobe.d/x.conf", "/etc/default/grub.d/x.cfg"]
    assert afterwards("apt", gone) == [["update-initramfs", "-u", "-k", "all"], ["update-grub"]]
    assert afterwards("dnf", gone) == [["dracut", "--force", "--regenerate-all"]]
    assert afterwards("apt", ["/etc/cdi/amd.json"]) == []
