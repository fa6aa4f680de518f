# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel knows of a host's fabric: RDMA devices, the size of packets, and what slows PCI down."""

from __future__ import annotations

import glob
import os
from typing import Any, Iterable

from ..common.files_host import text_of
from ..common.foreign_numbers import read_count
from .pci_tree import acs_redirects, bridges_in, shared

_CLASS = ("class", "infiniband")


def interface_mtu(interface: str, sysfs: str = "/sys") -> int:
    """Return the size of an interface's packets in bytes, 1500 where it is unknown."""
    text = text_of(os.path.join(sysfs, "class", "net", interface, "mtu")).strip()
    number = read_count(text)
    # Loopback has 65536, and no packet of IP is larger than 65535.
    return min(number, 65535) if number is not None and 576 <= number <= 65536 else 1500


def rdma_devices(sysfs: str = "/sys") -> list[dict[str, Any]]:
    """Return the InfiniBand and RoCE devices with their ports, by name.

    ``address`` is that of the PCI function, empty for a device in software. ``state`` is ACTIVE where the port works.
    """
    found = []
    for path in sorted(glob.glob(os.path.join(sysfs, *_CLASS, "*"))):
        device = os.path.realpath(os.path.join(path, "device"))
        ports = [
            {
                "port": int(os.path.basename(port)),
                "state": text_of(os.path.join(port, "state")).strip().rpartition(": ")[2],
                "rate": text_of(os.path.join(port, "rate")).strip(),
                "link": text_of(os.path.join(port, "link_layer")).strip(),
            }
            for port in sorted(glob.glob(os.path.join(path, "ports", "[0-9]*")))
            if os.path.basename(port).isascii() and os.path.basename(port).isdigit()
        ]
        address = os.path.basename(device) if os.path.exists(os.path.join(device, "vendor")) else ""
        found.append({"name": os.path.basename(path), "address": address, "ports": ports})
    return found


def near_rdma(functions: Iterable[str], sysfs: str = "/sys") -> list[dict[str, Any]]:
    """Return the RDMA devices whose first port works, below a PCI bridge of one of ``functions`` (PCI addresses).

    Each has ``name``, ``address``, and ``near``: how many bridges it has in common with each of the functions below the
    same root port. Transfers between the two do not pass the processor.
    """
    bridges = {address: _bridges(address, sysfs) for address in functions}
    found = []
    for device in rdma_devices(sysfs):
        if not any(port["port"] == 1 and port["state"] == "ACTIVE" for port in device["ports"]):
            continue
        above = _bridges(device["address"], sysfs) if device["address"] else []
        near = {address: common for address, others in bridges.items() if (common := shared(above, others))}
        if near:
            found.append({"name": device["name"], "address": device["address"], "near": near})
    return found


def _bridges(address: str, sysfs: str) -> list[str]:
    return bridges_in(os.path.realpath(os.path.join(sysfs, "bus", "pci", "devices", address)))


def redirecting_bridges(addresses: Iterable[str], sysfs: str = "/sys") -> list[str]:
    """Return the PCI bridges above some functions that send transfers between devices up to the processor (ACS).

    The registers can only be read by root.
    """
    found = set()
    for address in addresses:
        for bridge in _bridges(address, sysfs):
            if acs_redirects(_registers(os.path.join(sysfs, "bus", "pci", "devices", bridge, "config"))):
                found.add(bridge)
    return sorted(found)


def translated(addresses: Iterable[str], sysfs: str = "/sys") -> list[str]:
    """Return the PCI functions whose every transfer an IOMMU translates, in place of iommu=pt."""
    found = []
    for address in sorted(set(addresses)):
        kind = text_of(os.path.join(sysfs, "bus", "pci", "devices", address, "iommu_group", "type")).strip()
        if kind.startswith("DMA"):
            found.append(address)
    return found


def kernel_release(proc: str = "/proc") -> str:
    return text_of(os.path.join(proc, "sys", "kernel", "osrelease")).strip()


def _registers(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read(4096)
    except OSError:
        return b""
