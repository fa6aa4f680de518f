# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read on a host with NVIDIA's chips where it is odd; modules/test_driver_state.py has a whole one."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.host import (
    NODES,
    has_management_port,
    inspect_host,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import NOT_FOUND, CommandResult

from tests.fakes.nvidia import VERSION, add_switches, h200_host, write
from tests.fakes.sysfs import lines, write_sysfs


def inspect(host, answers=None):
    def run(words):
        return (answers or {}).get(words[0], CommandResult(NOT_FOUND))

    return inspect_host(str(host), str(host / "sys"), str(host / "proc"), run=run)


@pytest.fixture
def host(tmp_path):
    return h200_host(tmp_path)


def test_a_host_without_tools_still_shows_chips_and_the_loaded_driver(host):
    found = inspect(host)
    assert found.chips == ("0000:00:06.0",) and found.query.rc == NOT_FOUND and found.fabric == ""
    assert found.host.modules["nvidia"].version == VERSION
    assert found.host.modules["nvidia"].srcversion == "AB12CD" and found.nvrm.startswith("NVRM")
    assert found.information == {"0000:00:06.0": "Model: \t\t NVIDIA H200\n"}


def test_a_container_sees_the_driver_in_procfs_alone(host):
    for name in ("version", "srcversion"):
        (host / "sys/module/nvidia" / name).unlink()
    (host / "sys/module/nvidia").rmdir()
    module = inspect(host).host.modules["nvidia"]
    assert (module.version, module.srcversion) == (VERSION, None)
    (host / "proc/driver/nvidia/version").unlink()
    assert "nvidia" not in inspect(host).host.modules


def test_switches_are_no_chips_and_make_a_fabric(host):
    add_switches(host)
    found = inspect(host)
    assert found.fabric == "nvswitch" and found.chips == ("0000:00:06.0",)


@pytest.mark.parametrize("place", ["bus/pci/devices/0000:40:00.0/vpd", "class/infiniband/mlx5_0/device/vpd"])
def test_a_management_port_says_so_in_its_vital_product_data(tmp_path, place):
    write_sysfs(tmp_path, lines("15b3:1021", 2, first=0x40, pci_class="0207"))
    assert not has_management_port(str(tmp_path))
    write(tmp_path / place, "")
    (tmp_path / place).write_bytes(b"\x82\x0fQuantum\x00V0\x06SW_MNG\xff")
    assert has_management_port(str(tmp_path))
    (tmp_path / place).write_bytes(b"SW_MN\xff")
    assert not has_management_port(str(tmp_path))


def test_services_are_reported_as_systemd_says_even_if_they_do_not_run(host):
    found = inspect(host, {"systemctl": CommandResult(3, "inactive\n")})
    assert set(found.services.values()) == {"inactive"} and len(found.services) == 2


def test_nodes_are_those_of_the_driver():
    assert NODES.match("/dev/nvidia-uvm") and not NODES.match("/dev/dri/card0")
