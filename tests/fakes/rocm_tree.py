# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with AMD's chips to show to modules: a tree of files, and tools (sh scripts) that replay answers."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.fakes.nvidia import tool, write
from tests.fakes.sysfs import lines, write_sysfs

KERNEL = "6.8.0-50-generic"
VERSION = "6.16.13"
PACKAGE = "6.16.13.30300300-2255209.24.04"
UBUNTU = 'NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n'
CHIPS = ("0000:10:00.0", "0000:11:00.0")
MODINFO = (
    "filename:       /lib/modules/{kernel}/updates/dkms/amdgpu.ko.zst\nversion:        {version}\n"
    "srcversion:     AB12CD\nvermagic:       {kernel} SMP preempt mod_unload modversions\n"
)
KFD = (
    "cpu_cores_count 0\nsimd_count 1216\nlocation_id {location}\ndomain 0\nvendor_id 4098\ndevice_id 29857\n"
    "gfx_target_version 90402\n"
)
KERNEL_PACKAGES = (
    ("linux-image-generic", "6.8.0-50.51"),
    (f"linux-image-{KERNEL}", "6.8.0-50.51"),
    (f"linux-headers-{KERNEL}", "6.8.0-50.51"),
    ("linux-headers-generic", "6.8.0-50.51"),
    (f"linux-modules-extra-{KERNEL}", "6.8.0-50.51"),
    ("dkms", "3.0.11-1"),
)
DRIVER_PACKAGES = (("amdgpu-dkms", f"1:{PACKAGE}"), ("amdgpu-dkms-firmware", f"30.30.3.0.30300300-{PACKAGE[-13:]}"))


def dpkg(tree, *packages):
    """Say that these packages are installed, and bash."""
    rows = "".join(f"ii \t{name}\t{version}\n" for name, version in (*packages, ("bash", "5.2.21-2")))
    tool(tree / "bin", "dpkg-query", ("--show*", 0, rows, ""))


def mi300x_host(tree: Path) -> Path:
    """Write an Ubuntu host with two MI300X and a whole driver; return its directory."""
    write_sysfs(tree / "sys", lines("1002:74a1", 2, pci_class="1200"))
    for number, address in enumerate(CHIPS):
        device = tree / "sys/bus/pci/devices" / address
        os.symlink("../../drivers/amdgpu", device / "driver")
        location = int(address[5:7], 16) << 8
        node = tree / "sys/class/kfd/kfd/topology/nodes" / str(number + 1)
        write(node / "properties", KFD.format(location=location))
        write(tree / f"dev/dri/renderD{128 + number}", "").chmod(0o660)
    write(tree / "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\n")
    write(tree / "sys/class/drm/card0/device/fw_version/mec_fw_version", "0x000000b1\n")
    write(tree / "sys/module/amdgpu/version", f"{VERSION}\n")
    write(tree / "sys/module/amdgpu/srcversion", "AB12CD\n")
    write(tree / "proc/sys/kernel/osrelease", f"{KERNEL}\n")
    write(tree / "proc/sys/kernel/numa_balancing", "1\n")
    write(tree / "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro\n")
    write(tree / "dev/kfd", "").chmod(0o660)
    write(tree / "etc/os-release", UBUNTU)
    write(tree / "etc/default/grub", "GRUB_TIMEOUT=0\n")
    write(tree / "etc/group", f"render:x:{os.getgid()}:vllm\nvideo:x:44:vllm,mia\nmia:x:1000:\n")
    write(tree / "etc/passwd", "vllm:x:990:990::/:/bin/false\nmia:x:1000:1000::/home/mia:/bin/bash\n")
    write(tree / f"boot/vmlinuz-{KERNEL}", "")
    _write_tools(tree)
    return tree


def _write_tools(tree):
    directory = tree / "bin"
    gpus = [{"gpu": n, "bus": {"bdf": address}, "asic": {}} for n, address in enumerate(CHIPS)]
    tool(directory, "amd-smi", ("'static --asic --bus --driver --json'", 0, json.dumps({"gpu_data": gpus}), ""))
    dpkg(tree, *KERNEL_PACKAGES, *DRIVER_PACKAGES)
    tool(directory, "apt-mark", ("showhold", 0, "amdgpu-dkms\namdgpu-dkms-firmware\n", ""))
    tool(directory, "dkms", ("status", 0, f"amdgpu/{VERSION}-2255209.24.04, {KERNEL}, x86_64: installed\n", ""))
    built = MODINFO.format(kernel=KERNEL, version=VERSION)
    tool(directory, "modinfo", (f"'-k {KERNEL} amdgpu'", 0, built, ""), ("*", 1, "", "modinfo: ERROR\n"))
    tool(directory, "systemctl", ("list-units*", 0, "", ""))
    tool(directory, "journalctl", ("--dmesg*", 0, "kernel: Linux version 6.8.0\n", ""))
    tool(directory, "grubby", ("*", 127, "", ""))
