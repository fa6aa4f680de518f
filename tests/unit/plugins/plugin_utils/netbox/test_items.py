# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.netbox.items import (
    Item,
    compare_items,
    wanted_items,
)

CHIP = "0000:1b:00.0"
HARDWARE = {
    "driver_version": "580.159.04",
    "devices": [{"address": CHIP, "vendor_id": "10de", "device_id": "2335", "model": "h200"}],
    "unknown": [],
}
KNOWN = [{"address": CHIP, "serial": "165", "firmware": "96.00"}]
ITEM = Item(f"accelerator {CHIP}", "10de:2335", "165", "h200, firmware 96.00, driver 580.159.04", "nvidia")


def stored(item=ITEM, number=7, tagged=True, **more):
    """Return an item as NetBox lists it."""
    fields = dataclasses.asdict(item)
    fields["manufacturer"] = {"id": 1, "slug": item.manufacturer}
    tags = [{"id": 1, "slug": "baremetal-inference"}] if tagged else [{"id": 2, "slug": "else"}]
    return {"id": number, **fields, "tags": tags, **more}


def test_a_chip_is_an_item():
    assert wanted_items(HARDWARE, KNOWN) == [ITEM]


def test_what_is_unknown_is_left_out():
    (item,) = wanted_items({**HARDWARE, "driver_version": None}, [])
    assert (item.serial, item.description) == ("", "h200")
    chip = {"address": CHIP, "vendor_id": "1234", "device_id": "0001"}
    (item,) = wanted_items({"devices": [], "unknown": [chip]}, [])
    assert (item.description, item.manufacturer) == ("unknown model", "")
    assert wanted_items({"devices": [], "unknown": []}, KNOWN) == []


def test_nothing_is_longer_than_netbox_takes():
    (item,) = wanted_items(HARDWARE, [{"address": CHIP, "serial": "1" * 90, "firmware": "2" * 300}])
    assert (len(item.serial), len(item.description)) == (50, 200)


def test_the_same_is_no_change():
    assert not compare_items([stored()], [ITEM])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"serial": "166"}, "serial 165 -> 166"),
        ({"description": "h200"}, "description h200, firmware 96.00, driver 580.159.04 -> h200"),
        ({"part_id": "10de:2336", "serial": ""}, "part_id 10de:2335 -> 10de:2336; serial 165 -> none"),
        ({"manufacturer": "amd"}, "manufacturer nvidia -> amd"),
    ],
)
def test_a_difference_is_written_and_said(change, line):
    changes = compare_items([stored()], [dataclasses.replace(ITEM, **change)])
    assert changes.update == {7: change} and changes.lines == [f"{ITEM.name}: {line}"]


def test_a_serial_number_that_could_not_be_read_stays():
    assert not compare_items([stored()], [dataclasses.replace(ITEM, serial="")])


def test_new_and_gone():
    other = dataclasses.replace(ITEM, name="accelerator 0000:43:00.0", serial="166")
    changes = compare_items([stored()], [other])
    assert changes.create == [other] and changes.delete == [7]
    assert changes.lines == [
        "accelerator 0000:43:00.0: new: h200, firmware 96.00, driver 580.159.04, serial 166",
        f"{ITEM.name}: gone: h200, firmware 96.00, driver 580.159.04, serial 165",
    ]


def test_items_of_others_are_never_touched():
    power = stored(name="PSU 1", tagged=False)
    changes = compare_items([power, stored(number=8, tagged=False)], [ITEM])
    assert not changes and changes.foreign == [ITEM.name]
    assert not compare_items([power], [])
    assert not compare_items([stored(name="PSU 1", tagged=False, tags=None)], [])
