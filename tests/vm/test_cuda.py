# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian's own NVIDIA packages through the role cuda: compiled for a guest's kernels, then booted by a real one.

The tests follow one guest through its life and need each other, in this order. Only the chip is stood in for.
"""

from __future__ import annotations

import os
import re

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="the guest needs root")]

MODULE = "updates/dkms/nvidia-current.ko"
NO_CHIP = "modprobe: ERROR: could not insert 'nvidia_current': No such device"
NOUVEAU_HOLDS = "nouveau is loaded and holds the chips"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
MARK = "/var/lib/baremetal-cuda/rebooted"


def built(guest, kernel):
    """Return what modinfo says of the driver's module on disk for a kernel."""
    lines = guest.says(f"modinfo /lib/modules/{kernel}/{MODULE}").splitlines()
    return {key: value.strip() for key, _colon, value in (line.partition(":") for line in lines)}


def initial_files(guest, kernel):
    return guest.says(f"lsinitramfs /boot/initrd.img-{kernel}").splitlines()


def is_loaded(guest, module):
    return guest.run(f"test -d /sys/module/{module}").returncode == 0


@pytest.mark.whole
def test_nouveau_comes_in_by_itself_on_a_guest_that_no_role_has_seen(guest):
    guest.enter(["machine"], contained=False)
    assert is_loaded(guest, "nouveau")


@pytest.mark.whole
def test_check_mode_says_what_would_be_installed_and_changes_nothing(guest):
    before = guest.says("dpkg-query --show; find /etc -newer /etc/fstab -type f | sort")
    outcome = guest.play("cuda.yml", "--check", cuda_reboot_allowed=True)
    assert outcome.rc == 0, outcome.text
    assert "Would be installed: " in outcome.text
    assert "nvidia-kernel-dkms=535.*" in outcome.text
    assert guest.says("dpkg-query --show; find /etc -newer /etc/fstab -type f | sort") == before
    assert is_loaded(guest, "nouveau")


def test_driver_is_compiled_for_the_kernel_of_the_guest(guest):
    guest.enter(["container"], contained=True)
    (kernel,) = guest.kernels()
    outcome = guest.play("cuda.yml")
    # All is done but what only its own kernel can do.
    assert outcome.rc != 0
    assert re.search(r"modprobe: FATAL: Module nvidia\S* not found in directory /lib/modules/", outcome.failures[-1])
    status = guest.says("dkms status")
    assert re.fullmatch(rf"nvidia-current/535\.[\d.]+, {kernel}, x86_64: installed", status)
    module = built(guest, kernel)
    assert module["vermagic"].split()[0] == kernel
    assert module["version"] == status.split(",")[0].split("/")[1]
    assert re.fullmatch(r"[0-9A-F]{23}", module["srcversion"])


def test_nouveau_is_off_in_the_initial_file_system(guest):
    (kernel,) = guest.kernels()
    assert "etc/modprobe.d/baremetal-nouveau.conf" in initial_files(guest, kernel)


@pytest.mark.whole
def test_newer_kernel_without_headers_gets_them_and_a_module(guest):
    newest = guest.says(
        "apt-get update -qq; apt-cache depends --no-recommends --no-suggests linux-image-amd64 |"
        " sed -n 's/.*Depends: //p' | head -n 1"
    )
    release = newest.removeprefix("linux-image-")
    assert release not in guest.kernels(), "the archive has no newer kernel than the release's medium"
    said = guest.says(f"DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends {newest} 2>&1")
    # Debian's hook has nothing to compile with and leaves it at that.
    assert "was skipped since the kernel headers for this kernel" in said
    assert guest.run(f"test -e /lib/modules/{release}/{MODULE}").returncode != 0
    outcome = guest.play("cuda.yml")
    assert "modprobe: FATAL" in outcome.failures[-1]
    assert guest.says(f"dpkg-query --show --showformat '${{db:Status-Status}}' linux-headers-{release}") == "installed"
    assert guest.kernels()[-1] == release
    for kernel in guest.kernels():
        assert built(guest, kernel)["vermagic"].split()[0] == kernel
        assert "etc/modprobe.d/baremetal-nouveau.conf" in initial_files(guest, kernel)


def test_nouveau_stays_off_when_the_guest_boots(guest):
    guest.enter(["machine", "--kernel", guest.kernels()[0]], contained=False)
    assert guest.says("uname -r") == guest.kernels()[0]
    # It is asked for at every boot, and refused.
    assert "nouveau" in guest.says("cat /etc/modules-load.d/nouveau.conf")
    assert not is_loaded(guest, "nouveau")
    # By the name of the program: so early, the journal does not know the unit of every message.
    assert "'nouveau' is deny-listed" in guest.says("journalctl -b -t systemd-modules-load --no-pager")


def test_module_is_one_that_this_kernel_takes_and_that_finds_no_chip(guest):
    done = guest.run("modprobe nvidia")
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[0] == NO_CHIP
    assert "NVRM: No NVIDIA GPU found." in guest.says("dmesg")


@pytest.mark.whole
def test_nouveau_that_nobody_uses_goes_without_a_reboot(guest):
    boot = guest.says(BOOT_ID)
    guest.says("modprobe nouveau")
    outcome = guest.play("cuda.yml", cuda_reboot_allowed=True)
    assert not is_loaded(guest, "nouveau")
    assert guest.says(BOOT_ID) == boot
    # What is left is said with what to do: that the module finds no chip, and what does not run without one.
    assert outcome.rc != 0
    assert NO_CHIP in outcome.failures[-1]


def test_no_reboot_without_leave(guest):
    boot = guest.says(BOOT_ID)
    # A hardened host: from here to its next boot no module is loaded or unloaded.
    guest.says("modprobe nouveau; sysctl -q kernel.modules_disabled=1")
    outcome = guest.play("cuda.yml")
    assert outcome.rc != 0
    assert f"a reboot is needed ({NOUVEAU_HOLDS}), and cuda_reboot_allowed is false" in outcome.failures[-1]
    assert guest.says(BOOT_ID) == boot
    assert guest.run(f"test -e {MARK}").returncode != 0


@pytest.mark.whole
def test_with_leave_the_guest_reboots_into_its_newest_kernel_with_its_module(guest):
    boot = guest.says(BOOT_ID)
    outcome = guest.play("cuda.yml", cuda_reboot_allowed=True)
    assert guest.says(BOOT_ID) != boot
    assert guest.says(f"head -n 1 {MARK}") == boot
    newest = guest.kernels()[-1]
    assert guest.says("uname -r") == newest
    assert not is_loaded(guest, "nouveau")
    assert re.search(r"^blacklist nouveau$", guest.says("modprobe --showconfig"), re.MULTILINE)
    assert built(guest, newest)["vermagic"].split()[0] == newest
    # After it the run goes on, as far as it can without a chip.
    assert outcome.rc != 0
    rebooted, went_on = (
        outcome.text.index(f"TASK [baremetal.inference.vendor_stack : {name}]")
        for name in ("reboot | Reboot the host", "Start the services of the driver")
    )
    assert rebooted < went_on
    assert "rebooted" not in outcome.failures[-1]


@pytest.mark.whole
def test_no_second_reboot_for_the_same_reason(guest):
    boot = guest.says(BOOT_ID)
    guest.says("modprobe nouveau; sysctl -q kernel.modules_disabled=1")
    outcome = guest.play("cuda.yml", cuda_reboot_allowed=True)
    assert outcome.rc != 0
    assert f"the host was already rebooted for this, without success: {NOUVEAU_HOLDS}" in outcome.failures[-1]
    assert guest.says(BOOT_ID) == boot


@pytest.mark.whole
def test_reboot_that_takes_too_long_is_named_with_host_and_time(guest):
    guest.says(f"rm {MARK}")
    outcome = guest.play("cuda.yml", cuda_reboot_allowed=True, cuda_reboot_timeout=5)
    assert outcome.rc != 0
    assert f"guest: the host was rebooted ({NOUVEAU_HOLDS}) and did not come back within 5 s" in outcome.failures[-1]
