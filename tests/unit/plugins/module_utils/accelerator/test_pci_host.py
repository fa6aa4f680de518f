# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import (
    PciError,
    PciFunction,
    read_functions,
)

from tests.fakes.sysfs import ASPEED, RECORDED_H200_VM, line, lines, write_sysfs


def test_the_recorded_tree_of_an_h200_machine_is_read_whole(tmp_path):
    functions = read_functions(str(write_sysfs(tmp_path / "sys", RECORDED_H200_VM)))
    assert [function.id for function in functions][:2] == ["8086:0d57", "1af4:1042"]
    assert len(functions) == 7
    assert functions[-1] == PciFunction(
        address="0000:00:06.0",
        vendor_id="10de",
        device_id="2335",
        class_id="0302",
        subvendor_id="10de",
        subdevice_id="18bf",
        numa_node=None,
        virtual=False,
    )


def test_functions_come_by_address_with_their_numa_node(tmp_path):
    functions = read_functions(str(write_sysfs(tmp_path, [*reversed(lines("10de:2335", 8)), ASPEED])))
    assert [function.address for function in functions] == ["0000:03:00.0", *(f"0000:1{n}:00.0" for n in range(8))]
    assert [function.numa_node for function in functions] == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_only_the_functions_of_the_vendors_asked_for(tmp_path):
    root = write_sysfs(tmp_path, [*lines("10de:2335", 2), ASPEED])
    assert {function.vendor_id for function in read_functions(str(root), ["10de", "1002"])} == {"10de"}


def test_a_virtual_function_is_one_only_beside_its_physical_one(tmp_path):
    root = write_sysfs(tmp_path, [line("1002:74a1", 1, "1200"), line("1002:74b5", 2, "1200")])
    assert not any(function.virtual for function in read_functions(str(root)))
    os.symlink("../0000:01:00.0", root / "bus/pci/devices/0000:02:00.0/physfn")
    assert [function.virtual for function in read_functions(str(root))] == [False, True]


@pytest.mark.parametrize("name", ["vendor", "device", "class"])
def test_a_function_that_went_away_while_the_tree_was_read_is_left_out(tmp_path, name):
    root = write_sysfs(tmp_path, lines("10de:2335", 2))
    (root / "bus/pci/devices/0000:10:00.0" / name).unlink()
    assert [function.address for function in read_functions(str(root))] == ["0000:11:00.0"]


@pytest.mark.parametrize("text", ["", "0x", "2335", "0xzzzz", "\N{SNOWMAN}"])
def test_an_id_that_is_no_id_counts_as_none(tmp_path, text):
    root = write_sysfs(tmp_path, lines("10de:2335", 1))
    (root / "bus/pci/devices/0000:10:00.0/device").write_text(text)
    assert read_functions(str(root)) == []


def test_what_old_kernels_do_not_show_is_none(tmp_path):
    root = write_sysfs(tmp_path, ["0000:10:00.0 vendor=0x10de device=0x2335 class=0x030200"])
    (function,) = read_functions(str(root))
    assert (function.subvendor_id, function.subdevice_id, function.numa_node) == (None, None, None)


def test_a_host_without_a_pci_bus_has_no_functions(tmp_path):
    (tmp_path / "bus").mkdir()
    assert read_functions(str(tmp_path)) == []


def test_a_directory_that_is_no_sysfs_is_an_error_and_not_a_host_without_accelerators(tmp_path):
    with pytest.raises(
        PciError, match=f"{tmp_path}: no sysfs there, it has no directory 'bus'; mount sysfs or correct"
    ):
        read_functions(str(tmp_path))


def test_a_bus_that_cannot_be_listed_is_an_error(tmp_path):
    (tmp_path / "bus/pci").mkdir(parents=True)
    (tmp_path / "bus/pci/devices").write_text("")
    with pytest.raises(PciError, match="bus/pci/devices: cannot be listed: Not a directory"):
        read_functions(str(tmp_path))


def test_functions_that_a_loaded_driver_does_not_drive(tmp_path):
    audio = line("10de:22be", 0x12, "0403")
    root = write_sysfs(tmp_path, [*lines("10de:2335", 2), audio, line("1002:74a1", 0x20, "1200"), ASPEED])
    assert [function.address for function in read_functions(str(root)) if function.unbound] == []
    (root / "bus/pci/drivers/nvidia/0000:10:00.0").mkdir(parents=True)
    assert [function.address for function in read_functions(str(root)) if function.unbound] == ["0000:11:00.0"]
