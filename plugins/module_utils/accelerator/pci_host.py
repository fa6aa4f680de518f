# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI functions of a host, from sysfs, without any installed tool."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any, Collection

# Of 2**64.
MOST_DIGITS = 20
# The kernel's drivers by PCI vendor, and the base classes of what they drive for programs.
DRIVERS = {"1002": "amdgpu", "10de": "nvidia"}
_DRIVEN = ("03", "12")
# The options of modules; plugins/doc_fragments/kernel_trees.py documents them.
KERNEL_TREES = {"sysfs_root": {"type": "path", "default": "/sys"}, "proc_root": {"type": "path", "default": "/proc"}}


class PciError(ValueError):
    """The PCI tree cannot be read; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class PciFunction:
    """One function of a PCI device; all ids are four lower-case hex digits.

    ``address`` is ``domain:bus:device.function`` as the kernel writes it. ``class_id`` is base class and subclass.
    ``numa_node`` is None where the firmware names none. ``virtual`` is true for an SR-IOV function whose physical one
    is in the same tree; in a virtual machine, which only sees that one function, it is false. ``memory_mib`` is what
    AMD's driver reports, None for other chips and without it. ``unbound`` is true where the vendor's driver is loaded
    and does not drive the function, so that the vendor's tools do not list it.
    """

    address: str
    vendor_id: str
    device_id: str
    class_id: str
    subvendor_id: str | None = None
    subdevice_id: str | None = None
    numa_node: int | None = None
    virtual: bool = False
    memory_mib: int | None = None
    unbound: bool = False

    @property
    def id(self) -> str:
        """Return ``vendor:device``, the form that catalogues and ``lspci -nn`` use."""
        return f"{self.vendor_id}:{self.device_id}"

    def as_dict(self) -> dict[str, Any]:
        """Return the function as plain data, JSON-serialisable."""
        return asdict(self)


def read_functions(sysfs_root: str = "/sys", vendors: Collection[str] = ()) -> list[PciFunction]:
    """Return the PCI functions below ``sysfs_root``, by address; only those of ``vendors`` where any are given.

    A host without a PCI bus has none. Raises PciError where ``sysfs_root`` is not a sysfs or cannot be listed.
    """
    if not os.path.isdir(os.path.join(sysfs_root, "bus")):
        raise PciError(f"{sysfs_root}: no sysfs there, it has no directory 'bus'; mount sysfs or correct sysfs_root")
    directory = os.path.join(sysfs_root, "bus", "pci", "devices")
    try:
        addresses = sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise PciError(f"{directory}: cannot be listed: {exc.strerror}") from exc
    found = (_read_function(os.path.join(directory, address), address, vendors) for address in addresses)
    return [function for function in found if function]


def _read_function(path: str, address: str, vendors: Collection[str]) -> PciFunction | None:
    """Return one function; None for another vendor's, and for one that disappeared while the tree was read."""
    vendor_id = _hex_digits(path, "vendor")
    if not vendor_id or (vendors and vendor_id not in vendors):
        return None
    device_id, class_id = _hex_digits(path, "device"), _hex_digits(path, "class")
    if not device_id or not class_id:
        return None
    return PciFunction(
        address=address,
        vendor_id=vendor_id,
        device_id=device_id,
        class_id=class_id,
        subvendor_id=_hex_digits(path, "subsystem_vendor"),
        subdevice_id=_hex_digits(path, "subsystem_device"),
        numa_node=_number(path, "numa_node"),  # -1: the firmware names none
        virtual=os.path.exists(os.path.join(path, "physfn")),
        memory_mib=(_number(path, "mem_info_vram_total") or 0) // 1024**2 or None,
        unbound=class_id[:2] in _DRIVEN and _is_unbound(path, address, vendor_id),
    )


def _is_unbound(path: str, address: str, vendor_id: str) -> bool:
    # A function is a link in sysfs, so that its path followed by .. leads elsewhere.
    bus = os.path.dirname(os.path.dirname(path))
    driver = os.path.join(bus, "drivers", DRIVERS.get(vendor_id, ""))
    return vendor_id in DRIVERS and os.path.isdir(driver) and not os.path.exists(os.path.join(driver, address))


def _read(path: str, name: str) -> str:
    try:
        with open(os.path.join(path, name), encoding="ascii") as stream:
            return stream.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _hex_digits(path: str, name: str) -> str | None:
    """Return the first four hex digits of ``0x030200``; None for a file that is absent or holds something else."""
    text = _read(path, name).lower()
    digits = text[2:6]
    if not text.startswith("0x") or len(digits) != 4 or any(digit not in "0123456789abcdef" for digit in digits):
        return None
    return digits


def _number(path: str, name: str) -> int | None:
    text = _read(path, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None
