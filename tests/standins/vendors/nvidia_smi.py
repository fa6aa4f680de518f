# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says of a machine: the recorded answers of a real H200, told for each chip of the machine."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Mapping, Sequence
from xml.etree import ElementTree

from tests.standins.daemons import running
from tests.standins.place import HERE, Answer, Machine, Place

# Recorded on a machine with one H200 and driver 580.159.04.
RECORDED = HERE.parent / "fixtures/h200"
# Where the package of nvidia-smi writes down the version of its libraries.
LIBRARY = "usr/share/standin/nvidia-library"
CLASSES = ("0x0300", "0x0302")
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
HEADER = "| NVIDIA-SMI {library}    Driver Version: {driver}    CUDA Version: 13.0 |\n"
# A chip that is not the machine's own, because a test has put it there.
OTHER = {"name": "NVIDIA Graphics Device", "compute_capability": "7.0", "memory_mib": 16384, "mig": "[N/A]"}


@dataclass(frozen=True)
class Function:
    """A chip of the PCI tree."""

    address: str
    id: str


def chips_of(place: Place) -> list[Function]:
    """Return NVIDIA's chips of the PCI tree, in the order of their addresses."""
    found = []
    for path in sorted((place.sys / "bus/pci/devices").glob("*")):
        vendor, device, pci_class = ((path / name).read_text().strip() for name in ("vendor", "device", "class"))
        if vendor == "0x10de" and pci_class.startswith(CLASSES):
            found.append(Function(path.name, f"10de:{device[2:]}"))
    return found


def chip(machine: Machine, pci_id: str) -> Mapping[str, Any]:
    """Return what is known of a chip."""
    return machine.chip if pci_id in machine.chip.get("ids", ()) else OTHER


def answer(argv: Sequence[str], place: Place) -> Answer:
    """Return what nvidia-smi says: the query, the report of ``-q -x``, or its errors."""
    driver = place.read("sys/module/nvidia/version")
    library = (place.root / LIBRARY).read_text().strip()
    if place.fault("no-driver") is not None or not driver:
        return Answer(9, NO_DRIVER)
    if place.fault("mismatch") is not None or driver != library:
        words = f"NVML library version: {'.'.join(library.split('.')[:2])}\n"
        return Answer(18, f"Failed to initialize NVML: Driver/library version mismatch\n{words}")
    lost = place.fault("lost-chip")
    if lost is not None:
        words = f"Unable to determine the device handle for GPU{lost.upper()}: GPU is lost.  "
        return Answer(15, f"{words}Reboot the system to recover this GPU\n")
    taken = [function for function in chips_of(place) if place.read(_information(function))]
    if not taken:
        return Answer(6, "No devices were found\n")
    if any(word.startswith("--query-gpu") for word in argv):
        return Answer(out=_query(argv, place, taken, driver))
    if "-q" in argv:
        return Answer(out=_report(place, taken, driver))
    return Answer(out=HEADER.format(driver=driver, library=library))


def _information(function: Function) -> str:
    return f"proc/driver/nvidia/gpus/{function.address}/information"


def _uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number + 1:012}"


def _bus_id(address: str) -> str:
    return f"0000{address.upper()}"


def _mig(about: Mapping[str, Any], place: Place) -> tuple[str, list[int]]:
    """Return whether MIG is on, and the MiB of each instance, which the file ``mig`` has for all chips."""
    instances = place.fault("mig")
    if about["mig"] == "[N/A]" or instances is None:
        return about["mig"], []
    return "Enabled", [int(mib) for mib in instances.split()]


def _query(argv: Sequence[str], place: Place, taken: Sequence[Function], driver: str) -> str:
    (words,) = (word.partition("=")[2] for word in argv if word.startswith("--query-gpu="))
    lines = []
    for number, function in enumerate(taken):
        about = chip(place.machine(), function.id)
        values = {
            "index": str(number),
            "name": about["name"],
            "uuid": _uuid(number),
            "compute_cap": about["compute_capability"],
            "memory.total": f"{about['memory_mib']} MiB",
            "driver_version": driver,
            "mig.mode.current": _mig(about, place)[0],
            "pci.bus_id": _bus_id(function.address),
            "pci.device_id": f"0x{function.id[5:].upper()}10DE",
        }
        lines.append(", ".join(values[word] for word in words.split(",")))
    return "".join(f"{line}\n" for line in lines)


def _report(place: Place, taken: Sequence[Function], driver: str) -> str:
    root = ElementTree.fromstring((RECORDED / "nvidia-smi-q.xml").read_text())
    root.find("driver_version").text = driver
    root.find("attached_gpus").text = str(len(taken))
    model = root.find("gpu")
    root.remove(model)
    for number, function in enumerate(taken):
        root.append(_gpu(copy.deepcopy(model), number, function, place, driver))
    return f'<?xml version="1.0" ?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _gpu(gpu: ElementTree.Element, number: int, function: Function, place: Place, driver: str) -> ElementTree.Element:
    """Make one chip of the recorded one."""
    about = chip(place.machine(), function.id)
    state, status = _fabric(about, place, driver)
    mig, instances = _mig(about, place)
    mig = "N/A" if mig == "[N/A]" else mig
    gpu.set("id", _bus_id(function.address))
    for path, text in {
        "product_name": about["name"],
        "uuid": _uuid(number),
        "minor_number": str(number),
        "mig_mode/current_mig": mig,
        "mig_mode/pending_mig": mig,
        "persistence_mode": "Enabled" if running(place, "nvidia-persistenced") == "on" else "Disabled",
        "gsp_firmware_version": driver,
        "pci/pci_device_id": f"{function.id[5:].upper()}10DE",
        "fb_memory_usage/total": f"{about['memory_mib']} MiB",
        "fabric/state": state,
        "fabric/status": status,
    }.items():
        gpu.find(path).text = text
    if instances:
        # The form of netdata's recording of an A100 with MIG.
        devices = gpu.find("mig_devices")
        devices = ElementTree.SubElement(gpu, "mig_devices") if devices is None else devices
        devices.text = ""
        for index, mib in enumerate(instances):
            device = ElementTree.SubElement(devices, "mig_device")
            ElementTree.SubElement(device, "index").text = str(index)
            memory = ElementTree.SubElement(device, "fb_memory_usage")
            ElementTree.SubElement(memory, "total").text = f"{mib} MiB"
    _add_faults(gpu, function, place)
    return gpu


def _add_faults(gpu: ElementTree.Element, function: Function, place: Place) -> None:
    """Write faults into the answer: ``ecc`` (ADDRESS COUNT), ``hot`` and ``narrow`` (ADDRESS)."""
    address, _blank, count = (place.fault("ecc") or "").partition(" ")
    if address == function.address:
        gpu.find("ecc_errors/volatile/dram_correctable").text = count
    if place.fault("hot") == function.address:
        gpu.find("clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown").text = "Active"
        counter = "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown"
        gpu.find(counter).text = "2500000 us"
        gpu.find("temperature/gpu_temp").text = "91 C"
    if place.fault("narrow") == function.address:
        gpu.find("pci/pci_gpu_link_info/link_widths/current_link_width").text = "8x"


def _fabric(about: Mapping[str, Any], place: Place, driver: str) -> tuple[str, str]:
    """Return whether a chip has joined the NVLink fabric: it has to wait for the fabric manager."""
    if not about.get("fabric"):
        return "N/A", "N/A"
    joined = running(place, "nvidia-fabricmanager") == driver
    return ("Completed", "Success") if joined else ("In Progress", "N/A")
