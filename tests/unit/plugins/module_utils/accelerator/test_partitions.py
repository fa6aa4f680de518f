# SPDX-License-Identifier: GPL-3.0-or-later
"""The modes of AMD's chips, by the rules of the kernel (drivers/gpu/drm/amd/amdgpu/aqua_vanjaram.c)."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.partitions import (
    PartitionError,
    count_parts,
    is_same,
    partition_text,
)


@pytest.mark.parametrize(
    ("modes", "dies", "parts"),
    [
        ("SPX/NPS1", 8, 1),
        ("SPX", None, 1),
        ("DPX/NPS2", 8, 2),
        ("QPX/NPS4", 8, 4),
        ("CPX/NPS4", 8, 8),
        ("CPX/NPS2", 8, 8),
        ("cpx", 8, 8),
        ("CPX/NPS1", 6, 6),
        ("TPX/NPS1", 6, 3),
    ],
)
def test_devices_of_a_chip(modes, dies, parts):
    assert count_parts(modes, dies) == parts


@pytest.mark.parametrize(
    ("modes", "dies", "problem"),
    [
        ("SPX/NPS4", 8, "found 'SPX/NPS4', but SPX divides a chip by 1, which is no multiple of the 4 parts of"),
        ("DPX/NPS4", 8, "which is no multiple of the 4 parts of its memory"),
        ("TPX", 8, "found 'TPX', but 8 compute dies make no 3 parts"),
        ("QPX", 6, "6 compute dies make no 4 parts"),
        ("CPX/NPS4", 6, "which is no multiple of the 4 parts"),
        ("CPX", None, "the catalogue has no compute_dies of this chip"),
        ("MIG", 8, "expected a mode such as CPX or CPX/NPS4; "),
        ("CPX/NPS0", 8, "expected a mode such as CPX"),
        ("CPX/NPS4/x", 8, "expected a mode such as CPX"),
        ("CPX/NPS4, SPX/NPS1", 8, "the chips are in different modes (CPX/NPS4, SPX/NPS1); give all of them the same"),
    ],
)
def test_modes_that_a_chip_cannot_have(modes, dies, problem):
    with pytest.raises(PartitionError) as error:
        count_parts(modes, dies)
    assert problem in str(error.value)


def test_text_of_what_the_kernel_shows():
    assert partition_text("CPX\n", "NPS4\n") == "CPX/NPS4"
    assert partition_text("SPX", "") == "SPX"
    assert partition_text("UNKNOWN!", "\x1b[2J") == ""


def test_a_mode_of_memory_counts_where_both_name_one():
    assert is_same("CPX", "CPX/NPS4")
    assert is_same("cpx/nps4", "CPX/NPS4")
    assert not is_same("CPX/NPS1", "CPX/NPS4")
    assert not is_same("SPX/NPS1", "CPX/NPS4")
