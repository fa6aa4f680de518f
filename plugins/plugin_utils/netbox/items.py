# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which inventory items NetBox needs for the chips of a device, and how they differ from what it has."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

# Items with this tag belong to this collection; it changes no others.
TAG = "baremetal-inference"
# Slugs and names of manufacturers by the PCI vendor id of their chips.
MANUFACTURERS = {"10de": ("nvidia", "NVIDIA"), "1002": ("amd", "AMD"), "19e5": ("huawei", "Huawei"),
                 "8086": ("intel", "Intel")}  # fmt: skip
PREFIX = "accelerator "
# What NetBox accepts at most, in characters.
_LONGEST = {"name": 64, "part_id": 50, "serial": 50, "description": 200}
COMPARED = ("part_id", "serial", "description", "manufacturer")


class NetBoxError(Exception):
    """NetBox cannot be used as asked; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Item:
    """An inventory item as it should be; ``manufacturer`` is a slug, empty for none."""

    name: str
    part_id: str
    serial: str
    description: str
    manufacturer: str


@dataclass
class Changes:
    """The changes of one device: items to create, fields to set by item id, ids to delete; and all of it in words.

    ``foreign`` are names of items that somebody else has made.
    """

    create: list[Item] = field(default_factory=list)
    update: dict[int, dict[str, str]] = field(default_factory=dict)
    delete: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.lines)


def wanted_items(accelerator: Mapping[str, Any], chips: Sequence[Mapping[str, str]]) -> list[Item]:
    """Return an item for each accelerator of a host.

    ``accelerator`` is the fact of accelerator_info, ``chips`` the result of chip_identity.
    """
    known = {chip["address"]: chip for chip in chips}
    driver = accelerator.get("driver_version")
    found = []
    for device in [*accelerator.get("devices", ()), *accelerator.get("unknown", ())]:
        identity = known.get(device["address"], {})
        words = [str(device.get("model") or "unknown model")]
        words += [f"firmware {identity['firmware']}"] if identity.get("firmware") else []
        words += [f"driver {driver}"] if driver else []
        item = {
            "name": PREFIX + device["address"],
            "part_id": f"{device['vendor_id']}:{device['device_id']}",
            "serial": identity.get("serial", ""),
            "description": ", ".join(words),
        }
        cut = {key: value[: _LONGEST[key]] for key, value in item.items()}
        found.append(Item(**cut, manufacturer=MANUFACTURERS.get(device["vendor_id"], ("", ""))[0]))
    return found


def compare_items(there: Sequence[Mapping[str, Any]], wanted: Sequence[Item]) -> Changes:
    """Return what NetBox lacks. ``there`` are all inventory items of a device as its API lists them.

    A serial number that this run could not read stays, as long as the same kind of chip is at its place.
    """
    changes = Changes()
    own = {item["name"]: item for item in there if _is_own(item)}
    others = {item["name"] for item in there if not _is_own(item)}
    for item in wanted:
        if item.name in others:
            changes.foreign.append(item.name)
        elif item.name not in own:
            changes.create.append(item)
            serial = f", serial {item.serial}" if item.serial else ""
            changes.lines.append(f"{item.name}: new: {item.description}{serial}")
        else:
            _compare(own[item.name], item, changes)
    names = {item.name for item in wanted}
    for name in sorted(set(own) - names):
        gone = own[name]
        changes.delete.append(int(gone["id"]))
        serial = f", serial {gone['serial']}" if gone.get("serial") else ""
        changes.lines.append(f"{name}: gone: {gone.get('description')}{serial}")
    return changes


def _is_own(item: Mapping[str, Any]) -> bool:
    return any(tag.get("slug") == TAG for tag in item.get("tags") or ())


def _compare(there: Mapping[str, Any], item: Item, changes: Changes) -> None:
    before = {key: str(there.get(key) or "") for key in ("part_id", "serial", "description")}
    before["manufacturer"] = str((there.get("manufacturer") or {}).get("slug") or "")
    after = {key: getattr(item, key) for key in COMPARED}
    if not after["serial"] and before["part_id"] == after["part_id"]:
        after["serial"] = before["serial"]
    fields = {key: after[key] for key in COMPARED if before[key] != after[key]}
    if fields:
        changes.update[int(there["id"])] = fields
        words = [f"{key} {before[key] or 'none'} -> {value or 'none'}" for key, value in fields.items()]
        changes.lines.append(f"{item.name}: {'; '.join(words)}")
