# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.provisioning import agent_network_host as network
from ansible_collections.baremetal.inference.plugins.plugin_utils.provisioning.node import network_data

from tests.fakes.provision_entries import entry


def test_the_network_of_an_order_becomes_files_of_networkd():
    files = network.files_of(network_data(entry(nameservers=["10.0.1.2"], mtu=9000)))
    assert list(files) == ["50-port0.network"]
    lines = files["50-port0.network"].splitlines()
    for line in (
        "MACAddress=52:54:00:12:34:56",
        "MTUBytes=9000",
        "Address=10.0.1.11/24",
        "Gateway=10.0.1.1",
        "DNS=10.0.1.2",
    ):
        assert line in lines
    assert not any(line.startswith("Destination") for line in lines)


@pytest.mark.parametrize("change", [{"ethernet_mac_address": "x\n[Match]"}, {"id": "../x"}])
def test_network_data_that_would_write_elsewhere_is_refused(change):
    data = network_data(entry())
    data["links"][0].update(change)
    with pytest.raises(ValueError, match="has no valid address"):
        network.files_of(data)


# What lsblk of util-linux 2.41 says in the ramdisk of a server that Ironic has written before.
BEFORE = [
    {"name": "/dev/sr0", "type": "rom", "tran": "sata", "size": 4_000_000_000, "label": "config-2"},
    {"name": "/dev/nvme0n1", "type": "disk", "tran": "nvme", "size": 960197124096, "label": None},
    {"name": "/dev/nvme0n1p4", "type": "part", "tran": "nvme", "size": 67108864, "label": "config-2"},
]


@pytest.mark.parametrize(
    "device",
    [
        {"type": "part", "tran": "usb", "size": 67108864},
        {"type": "disk", "tran": "nvme", "size": 67108864},
        {"type": "disk", "tran": "usb", "size": 960197124096},
        {"type": "disk", "tran": None, "size": None},
        {"type": "lvm", "tran": None, "size": 67108864},
    ],
)
def test_a_disk_with_the_label_of_the_medium_does_not_choose_the_network(monkeypatch, device):
    """Ironic leaves a partition "config-2" on each host, and root of that host could write anything there."""
    false = {"name": "/dev/false", "label": "config-2", **device}
    monkeypatch.setattr(network, "_read", lambda name: {"from": name})
    monkeypatch.setattr(network, "_devices", lambda: [false, *BEFORE[::-1]])
    assert network.read_medium() == {"from": "/dev/sr0"}
    monkeypatch.setattr(network, "_devices", lambda: [false])
    with pytest.raises(SystemExit, match="no medium with the label"):
        network.read_medium(0)


def test_a_medium_at_usb_is_read_and_one_without_network_data_counts_last(monkeypatch):
    usb = {"name": "/dev/sda", "type": "disk", "tran": "usb", "size": 700_000_000, "label": "VMEDIA_BOOT_ISO"}
    monkeypatch.setattr(network, "_read", lambda name: {"from": name})
    monkeypatch.setattr(network, "_devices", lambda: [usb])
    assert network.read_medium() == {"from": "/dev/sda"}
    monkeypatch.setattr(network, "_devices", lambda: [usb, *BEFORE])
    assert network.read_medium() == {"from": "/dev/sr0"}


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_a_medium_whose_network_data_is_no_file_stops_no_boot(monkeypatch, tmp_path, kind):
    """One that blocks its reader would keep the ramdisk from starting, without a word."""

    def run(words, timeout=None, **_options):
        deadlines.append(timeout)
        if words[0] == "mount":
            path = os.path.join(words[-1], network.DATA)
            os.makedirs(os.path.dirname(path))
            {"fifo": os.mkfifo, "directory": os.mkdir, "link": lambda new: os.symlink("/dev/zero", new)}[kind](path)

    deadlines: list[float | None] = []
    monkeypatch.setattr(network.subprocess, "run", run)
    with pytest.raises(OSError, match=r"regular file|symbolic links|directory"):
        network._read("/dev/sr0")
    assert deadlines == [120, 120]


def test_lsblk_of_this_machine_has_these_fields():
    try:
        found = network._devices()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no lsblk here")
    assert {name for device in found for name in device} <= {"name", "type", "tran", "size", "label"}
    assert not any(network.is_medium(device) for device in found if os.path.basename(device["name"]) == "loop0")
