# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what the kernel of a machine shows: /standin/sys and /standin/proc."""

from __future__ import annotations

import json
import shutil
import uuid

from tests.standins.modules import info, load
from tests.standins.packages import stub, write
from tests.standins.place import Machine, Place
from tests.standins.vendor import vendor

# What every host of the stand-in has beside the tools of packages, in place of the host's own.
SYSTEM_TOOLS = ("modprobe", "modinfo", "rmmod", "update-initramfs")
X86 = (
    "processor\t: {n}\nvendor_id\t: {vendor}\nmodel name\t: {model}\nphysical id\t: {socket}\ncore id\t\t: {core}\n"
    "flags\t\t: {flags}\n"
)
ARM = (
    "processor\t: {n}\nBogoMIPS\t: 200.00\nFeatures\t: {flags}\nCPU implementer\t: {implementer}\nCPU part\t: {part}\n"
)


def write_machine(place: Place, machine: Machine) -> None:
    """Make a host a machine: its trees, freshly booted, and nothing of the machine that it was before."""
    for directory in (place.tree, place.state):
        shutil.rmtree(directory, ignore_errors=True)
    place.state.mkdir(parents=True)
    (place.state / "machine.json").write_text(json.dumps(machine.as_dict(), indent=1))
    for group in machine.functions:
        for number, address in enumerate(group["addresses"]):
            numa = group.get("numa", 0)
            add_function(place, address, group, numa[number] if isinstance(numa, list) else numa)
    for node in range(max(numa_nodes(machine), 1)):
        place.write({f"sys/devices/system/node/node{node}/": ""})
    place.write({"proc/cpuinfo": cpuinfo(machine), "proc/meminfo": f"MemTotal:       {machine.memory_gib * 2**20} kB"})
    boot(place, machine.kernel, machine.boot_id)


def add_function(place: Place, address: str, group: dict, numa: int = 0) -> None:
    """Put a PCI function into the tree; ``group`` is what a machine's folder says of it."""
    home = f"sys/bus/pci/devices/{address}"
    vendor_id, device_id = group["id"].split(":")
    files = {"vendor": f"0x{vendor_id}", "device": f"0x{device_id}", "class": f"0x{group.get('class', '030200')}"}
    files["numa_node"] = str(numa)
    if "subsystem" in group:
        subvendor, subdevice = group["subsystem"].split(":")
        files |= {"subsystem_vendor": f"0x{subvendor}", "subsystem_device": f"0x{subdevice}"}
    place.write({f"{home}/{name}": text for name, text in {**files, **group.get("files", {})}.items()})


def boot(place: Place, kernel: str, boot_id: str = "") -> None:
    """Let the machine boot a kernel: no module is loaded but those that udev finds for its chips and the kernel's."""
    for address in ("sys/module", "sys/class", "proc/driver"):
        place.remove(address)
    machine = place.machine()
    place.write(
        {
            "proc/sys/kernel/osrelease": kernel,
            "proc/sys/kernel/random/boot_id": boot_id or str(uuid.uuid4()),
            "sys/module/": "",
        }
    )
    for name in machine.boot_modules:
        load(place, name)
    for name in vendor(machine.vendor).autoload:
        if info(place, name, kernel):
            load(place, name)


def write_tools(place: Place) -> None:
    """Put the tools in place of the host's own that no package of a vendor brings."""
    for tool in SYSTEM_TOOLS:
        write(place.root / "usr/local/sbin" / tool, stub(tool))


def numa_nodes(machine: Machine) -> int:
    """Return how many NUMA nodes a machine has."""
    return int(machine.processor.get("nodes", machine.processor["sockets"]))


def cpuinfo(machine: Machine) -> str:
    """Return /proc/cpuinfo of a machine, with two cores a socket: nothing counts them here."""
    cpu = machine.processor
    form = X86 if machine.architecture == "x86_64" else ARM
    places = [(socket, core) for socket in range(cpu["sockets"]) for core in range(2)]
    blocks = [form.format(n=n, socket=socket, core=core, **cpu) for n, (socket, core) in enumerate(places)]
    return "\n".join(blocks) + "\n"
