# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.chips import (
    CudaHardware,
    check_supported,
    flavour_of,
    hardware_of,
    oldest_driver,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.chips import Chip
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import StackError
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue


def chip(model, **driver):
    return Chip("0000:01:00.0", model, "", None, driver)


BOTH, OLD = chip("h100"), chip("v100", modules="proprietary", last_branch=580)
NEW = chip("b200", modules="open", first="570.86.15", fabric="nvlink5")


def test_the_part_of_nvidia_among_what_was_detected():
    devices = [{"address": "0000:01:00.0", "model": "h200"}, {"address": "0000:02:00.0", "model": "mi300x"}]
    found = hardware_of({"devices": devices, "switches": [{"address": "0000:80:00.0"}]}, load_catalogue([]), True)
    assert [gpu.address for gpu in found.gpus] == ["0000:01:00.0"]
    assert found.switches == ("0000:80:00.0",) and found.management_ports


@pytest.mark.parametrize(
    ("hardware", "fabric"),
    [
        (CudaHardware((BOTH,) * 8), ""), (CudaHardware((BOTH,) * 8, ("0000:80:00.0",)), "nvswitch"),
        # One board of eight has its switches on it; fewer are single cards. Four of a rack show the management port.
        (CudaHardware((NEW,) * 8), "nvlink5"), (CudaHardware((NEW,) * 4), ""),
        (CudaHardware((NEW,) * 4, (), True), "nvlink5"), (CudaHardware((*(NEW,) * 7, BOTH)), ""),
    ],
)  # fmt: skip
def test_chips_that_share_a_fabric_need_its_manager(hardware, fabric):
    assert hardware.fabric == fabric


@pytest.mark.parametrize(
    ("gpus", "branch", "flavour"),
    [
        ([BOTH], 580, "open"), ([BOTH], 560, "open"), ([BOTH], 550, "proprietary"), ([NEW], 550, "open"),
        ([OLD], 580, "proprietary"), ([NEW, BOTH], 580, "open"),
    ],
)  # fmt: skip
def test_modules_are_open_unless_a_chip_or_the_branch_is_old(gpus, branch, flavour):
    assert flavour_of(gpus, branch) == (flavour, ())


def test_an_old_chip_decides_for_those_that_accept_both():
    flavour, (note,) = flavour_of([BOTH, OLD], 580)
    assert flavour == "proprietary"
    assert note == "proprietary kernel modules for all chips: v100 needs them, h100 accepts them"


@pytest.mark.parametrize(
    ("gpus", "branch", "reason"),
    [
        ([OLD, NEW], 580, "v100 needs the proprietary kernel modules and b200 the open ones"),
        ([OLD], 590, 'branch 590 does not support v100, 580 is the last that does; set cuda_version to "580"'),
    ],
)
def test_chips_that_no_driver_supports_together_are_refused(gpus, branch, reason):
    with pytest.raises(StackError, match=reason):
        flavour_of(gpus, branch)


def test_the_newest_chip_decides_which_driver_is_the_oldest():
    assert oldest_driver([BOTH], "550.54.14") == "550.54.14"
    assert oldest_driver([BOTH, NEW, chip("x", first="570.9")], "550.54.14") == "570.86.15"
    assert oldest_driver([NEW], "580.65.06") == "580.65.06"


def test_of_a_branch_its_newest_version_counts():
    check_supported([BOTH, NEW], 570, None)
    check_supported([NEW], 570, "570.86.15")
    for branch, version, shown in ((560, None, "branch 560"), (570, "570.86.10", "570.86.10")):
        with pytest.raises(StackError, match=rf"driver {shown} does not support b200, 570.86.15 is .* to \"570\" or"):
            check_supported([NEW], branch, version)
