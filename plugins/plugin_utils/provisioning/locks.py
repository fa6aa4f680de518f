# SPDX-License-Identifier: GPL-3.0-or-later
"""The locks against writing the wrong disk that the controller holds; the guard in the ramdisk holds the last one.

Each returns a refusal, one sentence, or nothing.
"""

import re
from dataclasses import dataclass
from typing import Mapping

from .entry import Entry
from .images import Image
from .server import Server

HERE = "here"
OTHER = "other"
SILENT = "silent"
# Names by which the ramdisk knows a disk, and a BMC does not: it lists serial numbers.
_WWN = re.compile(r"0x[0-9a-f]{16,32}|(?:eui|naa|nvme|uuid)\..+")


@dataclass(frozen=True)
class Lock:
    """What is known about a host before an order. ``answers`` says who answers SSH at its address.

    HERE: the system that this inventory's record describes. OTHER: anything else. SILENT: nobody. ``at_ironic`` is
    whether Ironic has the server: then a run before this one has switched it on. ``deed`` is what would happen
    to the host, and ``reason`` why the system there did not say what it is.
    """

    answers: str
    released: bool
    at_ironic: bool
    deed: str = "overwritten"
    reason: str = ""


def refusal(entry: Entry, server: Server, record: Mapping[str, object], lock: Lock) -> str | None:
    """Return why the disk of a host must not be written, None where nothing forbids it."""
    return (
        other_server(entry, server, record)
        or _other_disk(entry, server)
        or (None if lock.released else _answers_ssh(entry, lock) or _is_on(entry, server, lock))
    )


def other_server(entry: Entry, server: Server, record: Mapping[str, object]) -> str | None:
    """Return that the BMC is the one of another server, by its serial number."""
    recorded = record.get("bmc_serial")
    expected = entry.bmc_serial or (str(recorded) if recorded else "")
    if not expected or expected == server.serial:
        return None
    origin = "provision.bmc_serial" if entry.bmc_serial else "the record of the last run"
    return (
        f"the BMC {entry.bmc} shows the serial number {server.serial or 'nothing'!r}, {origin} says {expected!r}: it "
        "is another server; correct provision.bmc, or the serial number after a repair"
    )


def removal_refusal(
    entry: Entry, server: Server, record: Mapping[str, object], lock: Lock, disks: tuple[str, ...]
) -> str | None:
    """Return why a host must not be removed with these disks wiped, None where nothing forbids it."""
    return (
        other_server(entry, server, record)
        or _unlisted(entry, server, disks)
        or (None if lock.released else _answers_ssh(entry, lock) or _is_on(entry, server, lock))
    )


def _unlisted(entry: Entry, server: Server, disks: tuple[str, ...]) -> str | None:
    known = [disk.serial for disk in server.disks]
    unknown = [disk for disk in disks if disk not in (*known, entry.root_wwn) and not _WWN.fullmatch(disk)]
    if not known or not unknown:
        return None
    return (
        f"deprovision_disks: found {unknown[0]}, but the BMC lists no such disk; it lists {', '.join(known[:12])}; "
        "correct the serial number"
    )


def _other_disk(entry: Entry, server: Server) -> str | None:
    if not entry.root_serial or not server.disks or server.disk_of(entry):
        return None
    listed = ", ".join(disk.serial for disk in server.disks[:12])
    return (
        f"provision.root_serial: found {entry.root_serial}, but the BMC lists no such disk; it lists {listed}; "
        "correct the serial number"
    )


def _answers_ssh(entry: Entry, lock: Lock) -> str | None:
    if lock.answers == SILENT:
        return None
    unknown = "a system that this inventory does not know" + (f": {lock.reason}" if lock.reason else "")
    who = "the system that was provisioned here" if lock.answers == HERE else unknown
    return (
        f"{entry.address.ip} answers SSH ({who}), and it would be {lock.deed}; to allow that: "
        f"-e provision_release={entry.host}"
    )


def _is_on(entry: Entry, server: Server, lock: Lock) -> str | None:
    if server.power == "Off" or lock.at_ironic:
        return None
    return (
        f"the server is switched on ({server.power}), so it may serve under another address; switch it off, or allow "
        f"that it is {lock.deed}: -e provision_release={entry.host}"
    )


def describe_removal(entry: Entry, server: Server, disks: tuple[str, ...], secure: bool) -> str:
    """Return what would be wiped and what would stay, for check mode."""
    how = "all content" if secure else "partition tables and metadata"
    shown = [f"{disk.serial} ({disk.summary})" for disk in server.disks if disk.serial in disks]
    shown += [f"{each} (the BMC does not list it)" for each in disks if each not in [d.serial for d in server.disks]]
    kept = ", ".join(f"{disk.serial} ({disk.summary})" for disk in server.disks if disk.serial not in disks)
    wipe = f"wipe {how} of {', '.join(shown)}" if disks else "wipe no disk"
    return (
        f"{entry.host}: would drain it at its gateways, stop it, {wipe}, switch off {server.name}, serial number "
        f"{server.serial or 'unknown'}, power {server.power}, at {entry.bmc}, and forget its record and its SSH host "
        f"key; other disks stay as they are{': ' + kept if kept else ''}"
    )


def describe(entry: Entry, server: Server, image: Image) -> str:
    """Return which disk of which server would be written, for check mode."""
    disk = server.disk_of(entry)
    missing = "the BMC does not list it" if server.disks else "the BMC lists no disks"
    shown = disk.summary if disk else missing
    return (
        f"{entry.host}: would write {image.name} (build {image.build_id}) to the disk with {entry.disk} ({shown}) of "
        f"{server.name}, serial number {server.serial or 'unknown'}, power {server.power}, at {entry.bmc}"
    )
