# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.netbox.client import NetBox
from ansible_collections.baremetal.inference.plugins.plugin_utils.netbox.items import Item, NetBoxError
from ansible_collections.baremetal.inference.plugins.plugin_utils.netbox.write import compare_devices, write_changes

from tests.integration.netbox_server import TOKEN, serving

ITEMS = "/api/dcim/inventory-items/"
ONE = Item("accelerator 0000:1b:00.0", "10de:2335", "165", "h200", "nvidia")
TWO = dataclasses.replace(ONE, name="accelerator 0000:43:00.0", serial="166")


@pytest.fixture
def server():
    with serving() as found:
        yield found


def bring(server, **wanted):
    """Compare and write; return the lines of what differed."""
    netbox = NetBox(server.url, TOKEN)
    found = compare_devices(netbox, {name.replace("_", "-"): items for name, items in wanted.items()})
    write_changes(netbox, found)
    return {name: changes.lines for name, changes in found.changes.items() if changes}


def test_written_once_then_changed_then_removed(server):
    assert set(bring(server, gpu_a_01=[ONE, TWO], gpu_a_02=[ONE])) == {"gpu-a-01", "gpu-a-02"}
    items = server.objects[ITEMS]
    assert [(item["device"]["name"], item["serial"]) for item in items] == [
        ("gpu-a-01", "165"),
        ("gpu-a-01", "166"),
        ("gpu-a-02", "165"),
    ]
    assert items[0]["discovered"] is True and items[0]["manufacturer"]["slug"] == "nvidia"
    assert items[0]["tags"][0]["slug"] == "baremetal-inference"
    wrote = len(server.wrote)
    assert bring(server, gpu_a_01=[ONE, TWO], gpu_a_02=[ONE]) == {} and len(server.wrote) == wrote
    changed = dataclasses.replace(ONE, serial="999")
    assert list(bring(server, gpu_a_01=[changed], gpu_a_02=[ONE])) == ["gpu-a-01"]
    assert [item["serial"] for item in items] == ["999", "165"]
    # Each request has all items of a device.
    assert [method for method, _path, _data in server.wrote[wrote:]] == ["DELETE", "PATCH"]


def test_a_host_without_a_device_is_named(server):
    found = compare_devices(NetBox(server.url, TOKEN), {"nobody": [ONE], "gpu-a-01": []})
    assert list(found.missing) == ["nobody"] and list(found.changes) == ["gpu-a-01"]


def test_a_name_of_two_devices_is_an_error(server):
    devices = server.objects["/api/dcim/devices/"]
    devices.append({**devices[0], "id": 999})
    with pytest.raises(NetBoxError, match="several devices called 'gpu-a-01'"):
        bring(server, gpu_a_01=[ONE])


def test_a_maker_that_is_there_is_used(server):
    server.objects["/api/dcim/manufacturers/"].append({"id": 77, "name": "NVIDIA Corporation", "slug": "nvidia"})
    bring(server, gpu_a_01=[ONE])
    assert server.objects[ITEMS][0]["manufacturer"]["id"] == 77
