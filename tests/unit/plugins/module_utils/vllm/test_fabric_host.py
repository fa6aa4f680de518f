# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel knows of a fabric, in a sysfs of the test."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.fabric_host import (
    interface_mtu,
    near_rdma,
    rdma_devices,
    redirecting_bridges,
    translated,
)

CHIP, NIC, BRIDGE = "0000:17:00.0", "0000:18:00.0", "0000:16:00.0"


def registers(control):
    """Return a bridge's registers: one other extended capability, then ACS."""
    data = bytearray(4096)
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
    data[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
    data[0x146:0x148] = control.to_bytes(2, "little")
    return bytes(data)


@pytest.fixture
def sysfs(tmp_path):
    top = tmp_path / "sys"
    devices = top / "bus/pci/devices"
    devices.mkdir(parents=True)
    for address in (CHIP, NIC):
        real = top / "devices/pci0000:15" / BRIDGE / address
        (real / "iommu_group").mkdir(parents=True)
        (real / "vendor").write_text("0x15b3\n")
        (real / "iommu_group/type").write_text("identity\n")
        (devices / address).symlink_to(real)
    (real.parent / "config").write_bytes(registers(0b0001))
    (devices / BRIDGE).symlink_to(real.parent)
    port = top / "class/infiniband/mlx5_0/ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (port.parents[1] / "device").symlink_to(devices / NIC)
    (top / "class/net/bond1").mkdir(parents=True)
    (top / "class/net/bond1/mtu").write_text("9000\n")
    return top


def test_rdma_devices(sysfs):
    port = {"port": 1, "state": "ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link": "InfiniBand"}
    assert rdma_devices(str(sysfs)) == [{"name": "mlx5_0", "address": NIC, "ports": [port]}]


def test_a_device_in_software_and_a_host_without_any(sysfs, tmp_path):
    (sysfs / "class/infiniband/rxe0").mkdir()
    assert rdma_devices(str(sysfs))[1] == {"name": "rxe0", "address": "", "ports": []}
    assert rdma_devices(str(tmp_path / "none")) == []


def test_bridges_that_redirect(sysfs):
    assert redirecting_bridges([CHIP, NIC], str(sysfs)) == []
    (sysfs / "bus/pci/devices" / BRIDGE / "config").write_bytes(registers(0b0100))
    assert redirecting_bridges([CHIP, NIC], str(sysfs)) == [BRIDGE]
    assert redirecting_bridges(["0000:ff:00.0"], str(sysfs)) == []


def test_transfers_that_are_translated(sysfs):
    assert translated([CHIP, NIC], str(sysfs)) == []
    (sysfs / "bus/pci/devices" / NIC / "iommu_group/type").write_text("DMA-FQ\n")
    assert translated([CHIP, NIC], str(sysfs)) == [NIC]


def test_the_size_of_packets(sysfs):
    assert interface_mtu("bond1", str(sysfs)) == 9000
    assert interface_mtu("eth9", str(sysfs)) == 1500


@pytest.mark.parametrize("text", ["", "-1\n", "9000 bytes\n", "²\n", "99999999999\n", "0\n"])
def test_a_damaged_size_of_packets(sysfs, text):
    (sysfs / "class/net/bond1/mtu").write_text(text)
    assert interface_mtu("bond1", str(sysfs)) == 1500


def test_near_is_what_is_below_the_same_root_port(sysfs):
    far = sysfs / "devices/pci0000:95/0000:96:00.0/0000:97:00.0"
    far.mkdir(parents=True)
    (sysfs / "bus/pci/devices/0000:97:00.0").symlink_to(far)
    assert near_rdma([CHIP, "0000:97:00.0"], str(sysfs)) == [{"name": "mlx5_0", "address": NIC, "near": {CHIP: 1}}]
    assert near_rdma(["0000:97:00.0"], str(sysfs)) == []


def test_a_device_without_a_cable_is_near_nothing(sysfs):
    (sysfs / "class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    (sysfs / "class/infiniband/rxe0").mkdir()
    assert near_rdma([CHIP], str(sysfs)) == []
