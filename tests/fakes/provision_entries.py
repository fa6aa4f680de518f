# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts, images and servers for the tests of provisioning."""

from __future__ import annotations

from typing import Any

from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.entry import Entry, read_entry
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.images import Image
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.server import Disk, Server

VALUES = {
    "bmc": "https://10.1.0.11",
    "mac": "52:54:00:12:34:56",
    "address": "10.0.1.11/24",
    "gateway": "10.0.1.1",
    "root_serial": "S6CKNX0T",
    "image": "debian13",
}
IMAGE = Image("debian13", "http://10.0.0.5:8080/debian13.raw", "ab" * 32, "20261128-4f1c")


def entry(host: str = "gpu-a-01", **change: Any) -> Entry:
    """Return the entry of a host; a change to None removes the key."""
    values = {**VALUES, **change}
    return read_entry(host, {key: value for key, value in values.items() if value is not None})


def server(**change: Any) -> Server:
    """Return what the BMC of the host shows."""
    disks = (Disk("S6CKNX0T", "PM9A3", 960), Disk("DATA0001", "PM9A3", 7680))
    values = {
        "path": "/redfish/v1/Systems/1", "serial": "SRV0001", "name": "Example GPU-8", "power": "Off", "disks": disks,
    }  # fmt: skip
    return Server(**{**values, **change})
