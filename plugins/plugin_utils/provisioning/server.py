# SPDX-License-Identifier: GPL-3.0-or-later
"""A server as its BMC shows it before it is written: serial number, power, disks, and the settings of its firmware."""

import re
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Mapping

from ..redfish.chips import RedfishError
from ..redfish.documents import Document, is_there, link_to, links_to, printable, text_of
from ..redfish.reader import ROOT, Reader, Steps
from .entry import Entry

# More than one chassis of disks holds; a BMC that lists more is not read further.
MOST_CONTROLLERS = 16
MOST_DISKS = 96
# A DGX H100 shows 400 attributes of its firmware.
MOST_ATTRIBUTES = 5000
_ATTRIBUTE = re.compile(r"[A-Za-z0-9_.:-]{1,120}")
# The keys of a document that are kept.
_KEYS = """
    @odata.id Members Members@odata.nextLink Systems Storage Drives Bios Attributes Id Name Manufacturer Model
    SerialNumber PowerState CapacityBytes
"""
KEYS = tuple(_KEYS.split())
POWER_STATES = ("On", "Off", "PoweringOn", "PoweringOff")


@dataclass(frozen=True)
class Disk:
    """A disk that a BMC lists."""

    serial: str
    model: str
    gigabytes: int | None

    @property
    def summary(self) -> str:
        """Return model and size in words."""
        return f"{self.model or 'disk'}{f', {self.gigabytes} GB' if self.gigabytes else ''}"


@dataclass(frozen=True)
class Server:
    """``path`` is the system's path at the BMC. ``disks`` and ``firmware`` are empty where the BMC shows none."""

    path: str
    serial: str
    name: str
    power: str
    disks: tuple[Disk, ...] = ()
    maker: str = ""
    firmware: Mapping[str, Any] = field(default_factory=dict)

    def disk_of(self, entry: Entry) -> Disk | None:
        """Return the root disk, None where the BMC does not list a disk of that serial number."""
        return next((disk for disk in self.disks if entry.root_serial and disk.serial == entry.root_serial), None)


def read_server(system: str) -> Steps[Server]:
    """Return a server with its disks; ``system`` is its path, empty where the BMC has one system.

    Raises RedfishError for a BMC with several systems or none, and for a power state that the standard does not know.
    """
    reader = Reader(KEYS)
    path = system or (yield from _only_system(reader))
    (document,) = yield from reader.get([path])
    if not is_there(document):
        raise RedfishError(f"has no system {path}")
    power = text_of(document, "PowerState") or ""
    if power not in POWER_STATES:
        raise RedfishError(f"shows the power state {printable(power) or 'nothing'!r} at {path}")
    names = (text_of(document, "Manufacturer"), text_of(document, "Model"))
    return Server(
        path=path,
        serial=printable(text_of(document, "SerialNumber") or ""),
        name=printable(" ".join(name for name in names if name)) or "server without a name",
        power=power,
        disks=(yield from _disks(reader, document)),
        maker=printable(names[0] or ""),
        firmware=(yield from _firmware(reader, document)),
    )


def read_power(path: str) -> Steps[str]:
    """Return the power state of a system."""
    (document,) = yield from Reader(KEYS).get([path])
    return text_of(document, "PowerState") or ""


def survey_server(system: str) -> Any:
    """Return the survey of one server, without arguments."""
    return partial(read_server, system)


def _only_system(reader: Reader) -> Steps[str]:
    (root,) = yield from reader.get([ROOT])
    collection = link_to(root, "Systems")
    if not collection:
        raise RedfishError(f"no Redfish: {ROOT} names no Systems")
    (listed,) = yield from reader.get([collection])
    paths = links_to(listed, "Members", collection)
    if len(paths) != 1:
        raise RedfishError(
            f"lists {len(paths)} systems; name one with provision.system: {', '.join(paths[:8]) or 'it has none'}"
        )
    return paths[0]


def _disks(reader: Reader, system: Document) -> Steps[tuple[Disk, ...]]:
    """Return the disks of a system; none where the BMC has no such list, or one that cannot be read."""
    collection = link_to(system, "Storage")
    if not collection:
        return ()
    (listed,) = yield from reader.get([collection])
    controllers = links_to(listed, "Members", collection)[:MOST_CONTROLLERS]
    drives: list[str] = []
    for controller in (yield from reader.get(controllers)):
        drives += links_to(controller, "Drives", controller["@odata.id"])
    documents = yield from reader.get(list(dict.fromkeys(drives))[:MOST_DISKS])
    return tuple(disk for disk in map(_disk, documents) if disk.serial)


def _firmware(reader: Reader, system: Document) -> Steps[dict[str, Any]]:
    """Return the attributes of the firmware by name; none where the BMC shows none."""
    path = link_to(system, "Bios")
    if not path:
        return {}
    (document,) = yield from reader.get([path])
    attributes = document.get("Attributes")
    if not isinstance(attributes, dict) or len(attributes) > MOST_ATTRIBUTES:
        return {}
    return {
        name: printable(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if _ATTRIBUTE.fullmatch(name) and isinstance(value, (str, int, bool))
    }


def _disk(document: Document) -> Disk:
    size = document.get("CapacityBytes")
    whole = isinstance(size, int) and not isinstance(size, bool) and 0 < size < 10**18
    return Disk(
        printable(text_of(document, "SerialNumber") or ""),
        printable(text_of(document, "Model") or ""),
        size // 10**9 if whole and isinstance(size, int) else None,
    )
