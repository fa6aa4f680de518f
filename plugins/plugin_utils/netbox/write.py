# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the inventory items of devices to what was found on the hosts."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from .client import NetBox
from .items import MANUFACTURERS, TAG, Changes, Item, NetBoxError, compare_items

ITEMS = "dcim/inventory-items/"


class Comparison(NamedTuple):
    """What differs: NetBox's id and the changes of each device by its name, and hosts that have no device."""

    ids: Mapping[str, int]
    changes: Mapping[str, Changes]
    missing: Sequence[str]


def compare_devices(netbox: NetBox, wanted: Mapping[str, Sequence[Item]]) -> Comparison:
    """Compare devices by name with what was found on them. Raises NetBoxError, also for a name of several devices."""
    ids: dict[str, int] = {}
    for device in netbox.find("dcim/devices/", "name", sorted(wanted)):
        name = str(device.get("name"))
        if name in ids and name in wanted:
            raise NetBoxError(f"NetBox has several devices called {name!r}; give one of them another name")
        ids[name] = int(device["id"])
    there: dict[int, list[Mapping[str, Any]]] = {}
    numbers = {name: ids[name] for name in sorted(wanted) if name in ids}
    for item in netbox.find(ITEMS, "device_id", sorted(numbers.values())):
        there.setdefault(int(item["device"]["id"]), []).append(item)
    changes = {name: compare_items(there.get(number, ()), wanted[name]) for name, number in numbers.items()}
    return Comparison(numbers, changes, [name for name in sorted(wanted) if name not in numbers])


def write_changes(netbox: NetBox, found: Comparison) -> None:
    """Write what differs, in at most three requests for each device. Raises NetBoxError.

    NetBox accepts or refuses each request as a whole. Old items go first, because a new one may have their name.
    """
    makers = _ensure_manufacturers(netbox, found.changes.values())
    if any(changes.create for changes in found.changes.values()):
        _ensure(netbox, "extras/tags/", TAG, TAG)
    for name, changes in found.changes.items():
        if changes.delete:
            netbox.write("DELETE", ITEMS, [{"id": number} for number in changes.delete])
        if changes.update:
            entries = [{"id": number, **_fields(fields, makers)} for number, fields in changes.update.items()]
            netbox.write("PATCH", ITEMS, entries)
        if changes.create:
            netbox.write("POST", ITEMS, [_new(item, found.ids[name], makers) for item in changes.create])


def _new(item: Item, device: int, makers: Mapping[str, int]) -> dict[str, Any]:
    fields = {"name": item.name, "part_id": item.part_id, "serial": item.serial, "description": item.description}
    about = {"device": device, "discovered": True, "tags": [{"slug": TAG}]}
    return {**fields, **about, **_fields({"manufacturer": item.manufacturer}, makers)}


def _fields(fields: Mapping[str, str], makers: Mapping[str, int]) -> dict[str, Any]:
    """Return fields as NetBox takes them: a manufacturer by its id."""
    return {key: makers.get(value) if key == "manufacturer" else value for key, value in fields.items()}


def _ensure_manufacturers(netbox: NetBox, every: Iterable[Changes]) -> dict[str, int]:
    """Return the ids of the manufacturers that changes name, by slug; create those that are missing."""
    slugs = set()
    for changes in every:
        slugs |= {item.manufacturer for item in changes.create}
        slugs |= {fields.get("manufacturer", "") for fields in changes.update.values()}
    names = dict(MANUFACTURERS.values())
    return {slug: _ensure(netbox, "dcim/manufacturers/", slug, names[slug]) for slug in sorted(slugs - {""})}


def _ensure(netbox: NetBox, path: str, slug: str, name: str) -> int:
    """Return the id of an object, which is created if it is missing."""
    for found in netbox.find(path, "slug", [slug]):
        return int(found["id"])
    return int(netbox.write("POST", path, {"name": name, "slug": slug})["id"])
