# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is a tree of files, with stand-ins for the tools."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.host import HostSettings
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.plan import decide
from ansible_collections.baremetal.inference.plugins.module_utils.host_tuning.settings import wanted_of

from tests.unit.plugins.module_utils.host_tuning.test_pci_config import config_of
from tests.unit.plugins.module_utils.host_tuning.test_settings import OFF

EVERYTHING = {
    "governor": "performance",
    "numa_balancing_off": True,
    "transparent_huge_pages": "madvise",
    "acs_off": True,
    "persistence": True,
    "power_cap": 500,
    "limits": {"memlock": "unlimited"},
    "iommu_pt": True,
}
NVIDIA_SMI = """#!/bin/sh
cd {state}
case "$*" in
*--query-gpu*) echo "00000000:1B:00.0, $(cat mode), $(cat limit).00, 200.00, 700.00" ;;
*-pm*) test "$4" = 1 && echo Enabled > mode || echo Disabled > mode ;;
*-pl*) echo "$4" > limit ;;
esac
"""


class Machine:
    """A host as files below a directory."""

    def __init__(self, top):
        self.top = top
        self.sysfs, self.proc, self.root, self.bin = (top / name for name in ("sys", "proc", "root", "bin"))
        for number in range(2):
            self.write(f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor", "powersave\n")
            self.write(
                f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_available_governors", "performance powersave\n"
            )
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
        self.write("sys/bus/pci/drivers/amdgpu/0000:05:00.0/hwmon/hwmon3/power1_cap", "750000000\n")
        self.write("sys/bus/pci/drivers/amdgpu/0000:05:00.0/hwmon/hwmon3/power1_cap_min", "0\n")
        self.write("sys/bus/pci/drivers/amdgpu/0000:05:00.0/hwmon/hwmon3/power1_cap_max", "750000000\n")
        self.write("proc/sys/kernel/numa_balancing", "1\n")
        self.write("proc/cmdline", "ro quiet\n")
        self.write("proc/cpuinfo", "vendor_id\t: GenuineIntel\n")
        self.write("root/etc/default/grub", "GRUB_TIMEOUT=1\n")
        port = bytearray(config_of(6))
        port[0x146] = 0x1D
        (self.sysfs / "bus/pci/devices/0000:02:00.0").mkdir(parents=True)
        (self.sysfs / "bus/pci/devices/0000:02:00.0/config").write_bytes(bytes(port))
        self.write("state/mode", "Disabled\n")
        self.write("state/limit", "700\n")
        self.tool("nvidia-smi", NVIDIA_SMI.format(state=top / "state"))
        self.tool("systemctl", f'#!/bin/sh\necho "systemctl $*" >> {top}/log\n')
        self.tool("update-grub", f"#!/bin/sh\necho update-grub >> {top}/log\n")

    def write(self, name, text):
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def text(self, name):
        return (self.top / name).read_text().strip()

    def tool(self, name, text):
        self.write(f"bin/{name}", text)
        (self.bin / name).chmod(0o755)

    def settings(self):
        return HostSettings(str(self.sysfs), str(self.proc), str(self.root))

    def acs(self):
        return (self.sysfs / "bus/pci/devices/0000:02:00.0/config").read_bytes()[0x146]

    def plan(self, options):
        host = self.settings()
        saved = host.saved()
        wanted = wanted_of({**OFF, **options}, host.iommu_words(), host.grubby)
        return host, wanted, decide(wanted, host.read({*wanted, *saved}), saved)

    def run(self, options):
        host, _wanted, plan = self.plan(options)
        host.apply(plan)
        return plan

    def snapshot(self):
        files = [path for path in sorted(self.top.rglob("*")) if path.is_file() and path.name not in ("log",)]
        return {str(path.relative_to(self.top)): path.read_bytes() for path in files}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    if os.uname().machine != "x86_64":
        pytest.skip("the arguments of the kernel are those of an x86")
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{made.bin}:/usr/bin:/bin")
    return made


@pytest.fixture
def kernel(machine, monkeypatch):
    """A machine whose kernel answers with brackets after a write, as the real one does."""
    path = machine.sysfs / "kernel/mm/transparent_hugepage/enabled"
    read = HostSettings._huge_pages

    def bracketed(host):
        word = path.read_text().strip()
        if "[" not in word:
            path.write_text(" ".join(f"[{each}]" if each == word else each for each in ("always", "madvise", "never")))
        return read(host)

    monkeypatch.setattr(HostSettings, "_huge_pages", bracketed)
    return machine
