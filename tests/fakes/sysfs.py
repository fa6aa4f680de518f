# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts to show to detection: PCI trees in sysfs, and texts of procfs."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
FILES = {
    "vendor": "vendor",
    "device": "device",
    "class": "class",
    "subvendor": "subsystem_vendor",
    "subdevice": "subsystem_device",
    "numa": "numa_node",
}

ASPEED = "0000:03:00.0 vendor=0x1a03 device=0x2000 class=0x030000 numa=0"
RECORDED_H200_VM = (FIXTURES / "h200" / "pci-sysfs.txt").read_text().splitlines()

MEMINFO = "MemTotal:       1584785408 kB\nMemFree:        1000000000 kB\n"
X86 = (
    "processor\t: {n}\nmodel name\t: Intel(R) Xeon(R) 6980P\n"
    "physical id\t: {socket}\ncore id\t\t: {core}\nflags\t\t: {flags}\n"
)
ARM = (
    "processor\t: {n}\nBogoMIPS\t: 2000.00\nFeatures\t: {flags}\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n"
)


def line(pci_id, number, pci_class="0302", numa=0):
    """One function as the recorded trees show it; number becomes its bus."""
    vendor, device = pci_id.split(":")
    return f"0000:{number:02x}:00.0 vendor=0x{vendor} device=0x{device} class=0x{pci_class}00 numa={numa}"


def lines(pci_id, count, first=0x10, pci_class="0302"):
    """Several functions, the second half of them on the second NUMA node."""
    return [line(pci_id, first + n, pci_class, numa=n * 2 // count) for n in range(count)]


def write_sysfs(root, functions, nodes=1):
    """Write a sysfs that has these functions (lines as recorded) and NUMA nodes; return its path."""
    devices = root / "bus" / "pci" / "devices"
    devices.mkdir(parents=True)
    for entry in functions:
        address, *words = entry.split()
        (devices / address).mkdir()
        for name, value in (word.split("=") for word in words):
            (devices / address / FILES[name]).write_text(f"{value}\n")
    for node in range(nodes):
        (root / "devices" / "system" / "node" / f"node{node}").mkdir(parents=True)
    return root


def x86(flags="fpu avx avx2 avx512f avx512_bf16 amx_bf16", sockets=2, cores=2, threads=2):
    """Return /proc/cpuinfo of an x86 host."""
    blocks = []
    for socket in range(sockets):
        for core in range(cores * threads):
            blocks.append(X86.format(n=len(blocks), socket=socket, core=core % cores, flags=flags))
    return "\n".join(blocks) + "\n"


def arm(flags="fp asimd asimddp sve bf16 i8mm", implementer="0x41", part="0xd4f", cores=4):
    """Return /proc/cpuinfo of a 64-bit Arm host."""
    return "\n".join(ARM.format(n=n, flags=flags, implementer=implementer, part=part) for n in range(cores)) + "\n"


def write_procfs(root, cpuinfo=None, meminfo=MEMINFO):
    """Write the two files of procfs that detection reads; return their directory."""
    root.mkdir(parents=True)
    (root / "cpuinfo").write_text(x86() if cpuinfo is None else cpuinfo)
    (root / "meminfo").write_text(meminfo)
    return root
