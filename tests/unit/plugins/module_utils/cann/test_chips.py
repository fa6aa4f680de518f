# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.chips import CHIPS, chip_of, hardware_of
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import StackError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue

CATALOGUE = load_catalogue([])


def hardware(*models):
    devices = [{"address": f"0000:{number:02x}:00.0", "model": model} for number, model in enumerate(models, 1)]
    return hardware_of({"devices": devices}, CATALOGUE)


def test_each_die_has_a_node_and_nodes_of_all_dies_are_named_once():
    found = hardware("ascend_a2", "h200", "ascend_a2")
    assert [npu.address for npu in found.npus] == ["0000:01:00.0", "0000:03:00.0"]
    shared = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
    assert found.nodes == ("/dev/davinci0", *shared, "/dev/davinci1")


def test_every_ascend_chip_of_the_catalogue_that_vllm_runs_on_has_a_driver_package():
    for key, model in CATALOGUE.models.items():
        if model.stack == "cann" and not model.unsupported:
            assert chip_of(hardware(key)) is CHIPS[model.generation]


def test_packages_of_kinds_of_chips_differ():
    names = [name for chip in CHIPS.values() for name in (chip.apt, chip.dnf, chip.firmware_apt, chip.firmware_dnf)]
    assert len(set(names)) == len(names)
    assert all(chip.apt == chip.dnf.lower() for chip in CHIPS.values())
    assert all(chip.firmware_apt == chip.firmware_dnf.lower() for chip in CHIPS.values())


def test_a_host_without_chips_is_told_what_to_check():
    with pytest.raises(StackError, match="no Ascend chip is on PCI; take the host out of accel_cann"):
        chip_of(hardware("h200"))


def test_two_kinds_of_chips_need_two_hosts():
    with pytest.raises(StackError, match=r"ascend_310p\S* \(310p\) and ascend_a2\S* \(910b\) need different driver"):
        chip_of(hardware("ascend_a2", "ascend_310p"))
