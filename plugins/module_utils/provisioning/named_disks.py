# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices of a server are wiped: those of the named disks, and no other."""

from __future__ import annotations

from typing import Iterable, NamedTuple, Sequence


class NamedDiskError(ValueError):
    """A named disk is not there, or not alone; the message is the whole sentence."""


class Device(NamedTuple):
    """A whole disk of the ramdisk: its device name, and what it may be called by."""

    name: str
    serial: str
    wwns: Sequence[str] = ()


def devices_of(devices: Iterable[Device], disks: Sequence[str]) -> list[str]:
    """Return the device of each named disk. ``disks`` are serial numbers or WWNs. Raises NamedDiskError."""
    known = list(devices)
    listed = ", ".join(f"{device.name} {device.serial or '(no serial number)'}" for device in known) or "none"
    if not disks:
        raise NamedDiskError("no disk is named, so none is wiped")
    found = []
    for disk in disks:
        fits = [device.name for device in known if disk and disk in (device.serial, *device.wwns)]
        if len(fits) != 1:
            wrong = f"{len(fits)} disks are called" if fits else "no disk is called"
            raise NamedDiskError(f"{wrong} {disk!r}; the disks are {listed}; nothing was wiped")
        found += fits
    if len(set(found)) != len(found):
        raise NamedDiskError(f"two of the named disks are the same device; the disks are {listed}; nothing was wiped")
    return found
