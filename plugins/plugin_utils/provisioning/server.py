# SPDX-License-Identifier: GPL-3.0-or-later
"""A server as its BMC shows it before it is written: its serial number, its power, its disks.

The surveys are generators as in redfish/survey.py: they yield the documents that they need and receive their content.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Mapping

from ..redfish.chips import RedfishError
from ..redfish.documents import link_to, links_to, printable, text_of
from ..redfish.survey import ROOT, Steps, Wanted
from .entry import Entry

# More than one chassis of disks holds; a BMC that lists more is not read further.
MOST_CONTROLLERS = 16
MOST_DISKS = 96
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
    """``path`` is the system's path at the BMC. ``disks`` is empty where the BMC lists none."""

    path: str
    serial: str
    name: str
    power: str
    disks: tuple[Disk, ...] = ()

    def disk_of(self, entry: Entry) -> Disk | None:
        """Return the root disk, None where the BMC does not list a disk of that serial number."""
        return next((disk for disk in self.disks if entry.root_serial and disk.serial == entry.root_serial), None)


def read_server(system: str) -> Steps[Server]:
    """Return a server with its disks; ``system`` is its path, empty where the BMC has one system.

    Raises RedfishError for a BMC with several systems or none, and for a power state that the standard does not know.
    """
    path = system or (yield from _only_system())
    document = yield from _get(path)
    if not document:
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
        disks=(yield from _disks(document)),
    )


def read_power(path: str) -> Steps[str]:
    """Return the power state of a system."""
    document = yield from _get(path)
    return text_of(document, "PowerState") or ""


def survey_server(system: str) -> Any:
    """Return the survey of one server, without arguments."""
    return partial(read_server, system)


def _get(path: str) -> Steps[dict[str, Any]]:
    answers: Mapping[str, Any] = yield [Wanted(path)]
    return _named(path, answers.get(path))


def _named(path: str, document: Any) -> dict[str, Any]:
    return {**document, "@odata.id": path} if isinstance(document, dict) and document else {}


def _only_system() -> Steps[str]:
    root = yield from _get(ROOT)
    collection = link_to(root, "Systems") if root else None
    if not collection:
        raise RedfishError(f"no Redfish: {ROOT} names no Systems")
    paths = links_to((yield from _get(collection)), "Members", collection)
    if len(paths) != 1:
        raise RedfishError(
            f"lists {len(paths)} systems; name one with provision.system: {', '.join(paths[:8]) or 'it has none'}"
        )
    return paths[0]


def _disks(system: dict[str, Any]) -> Steps[tuple[Disk, ...]]:
    """Return the disks of a system; none where the BMC has no such list, or one that cannot be read."""
    collection = link_to(system, "Storage")
    if not collection:
        return ()
    controllers = links_to((yield from _get(collection)), "Members", collection)[:MOST_CONTROLLERS]
    answers: Mapping[str, Any] = (yield [Wanted(path) for path in controllers]) if controllers else {}
    drives: list[str] = []
    for path in controllers:
        drives += links_to(_named(path, answers.get(path)), "Drives", path)
    drives = list(dict.fromkeys(drives))[:MOST_DISKS]
    answers = (yield [Wanted(path) for path in drives]) if drives else {}
    found = [_disk(_named(path, answers.get(path))) for path in drives]
    return tuple(disk for disk in found if disk.serial)


def _disk(document: dict[str, Any]) -> Disk:
    size = document.get("CapacityBytes")
    whole = isinstance(size, int) and not isinstance(size, bool) and 0 < size < 10**18
    return Disk(
        printable(text_of(document, "SerialNumber") or ""),
        printable(text_of(document, "Model") or ""),
        size // 10**9 if whole and isinstance(size, int) else None,
    )
