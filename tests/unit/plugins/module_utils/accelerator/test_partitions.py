# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's modes by the rules of the kernel (amdgpu/aqua_vanjaram.c), MIG by NVIDIA's guide and recordings."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.partitions import (
    PartitionError,
    count_mig,
    count_parts,
    is_same,
    mig_gib,
    mig_instances,
    partition_text,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import (
    declared_accelerator,
    load_catalogue,
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


# What __aqua_vanjaram_get_px_mode_info of the kernel (since July 2025) allows, and which modes the memory has by AMD's
# compatibility matrix (instinct.docs.amd.com). GC 9.5.0 has NPS2 with QPX and CPX, too: a user of MI355X ran all seven.
MEMORY = {"mi300x": (1, 2, 4), "mi325x": (1, 4), "mi350x": (1, 2), "mi355x": (1, 2)}
KERNEL = {"SPX": {1}, "DPX": {1, 2}, "QPX": {1, 4}, "CPX": {1, 4}}
OF_9_5_0 = {**KERNEL, "QPX": {1, 2, 4}, "CPX": {1, 2, 4}}
PARTS = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}


@pytest.mark.parametrize("model", MEMORY)
@pytest.mark.parametrize("compute", PARTS)
@pytest.mark.parametrize("memory", [1, 2, 4, 8])
def test_each_pair_of_modes_of_each_chip_is_as_the_kernel_has_it(model, compute, memory):
    entry = load_catalogue().models[model]
    table = OF_9_5_0 if entry.generation == "gfx950" else KERNEL
    assert entry.memory_modes == tuple(f"NPS{mode}" for mode in MEMORY[model])
    modes = f"{compute}/NPS{memory}"
    if memory in table[compute] and memory in MEMORY[model]:
        assert count_parts(modes, entry.compute_dies, entry.memory_modes) == PARTS[compute]
        chips = declared_accelerator(load_catalogue(), model, 8, facts={"partition": modes})
        assert (chips.count, chips.memory_mib) == (8 * PARTS[compute], entry.memory_gib * 1024 // PARTS[compute])
    else:
        with pytest.raises(PartitionError, match=f"^found '{modes}', but "):
            count_parts(modes, entry.compute_dies, entry.memory_modes)


def test_a_chip_with_half_of_the_dies_has_half_of_the_parts():
    """AMD's page MI350 Series microarchitecture: an MI350P has four XCDs and NPS1 only."""
    entry = load_catalogue().models["mi350p"]
    assert count_parts("CPX/NPS1", entry.compute_dies, entry.memory_modes) == 4
    with pytest.raises(PartitionError):
        count_parts("CPX/NPS2", entry.compute_dies, entry.memory_modes)


def test_text_of_what_the_kernel_shows():
    assert partition_text("CPX\n", "NPS4\n") == "CPX/NPS4"
    assert partition_text("SPX", "") == "SPX"
    assert partition_text("UNKNOWN!", "\x1b[2J") == ""


def test_a_mode_of_memory_counts_where_both_name_one():
    assert is_same("CPX", "CPX/NPS4")
    assert is_same("cpx/nps4", "CPX/NPS4")
    assert not is_same("CPX/NPS1", "CPX/NPS4")
    assert not is_same("SPX/NPS1", "CPX/NPS4")


@pytest.mark.parametrize(
    ("partition", "slices", "memory", "count", "gib"),
    # Lower than nvidia-smi shows them: 9.75, 19.62, 39.5 and 79.25 of an H100, 16 and 70 of an H200, 20.5 of a B200,
    # 19.5 of an A100 with 40 GB.
    [
        ("7x1g.10gb", 7, 80, 7, 8.7),
        ("4x1g.20gb", 7, 80, 4, 18.6),
        ("3x2g.20gb", 7, 80, 3, 18.6),
        ("2x3g.40gb", 7, 80, 2, 37.3),
        ("1x7g.80gb", 7, 80, 1, 74.5),
        ("7x1g.18gb", 7, 141, 7, 15.6),
        ("2x3g.71gb", 7, 141, 2, 66.1),
        ("7x1g.23gb", 7, 180, 7, 19.9),
        ("2x3g.20gb", 7, 40, 2, 18.6),
        ("4x1g.24gb", 4, 96, 4, 22.4),
        ("1X1G.10GB+me", 7, 80, 1, 8.7),
    ],
)
def test_mig_instances_of_a_chip(partition, slices, memory, count, gib):
    assert (count_mig(partition, slices, memory), mig_instances(partition)) == (count, count)
    assert mig_gib(partition, memory) == gib


@pytest.mark.parametrize(
    ("partition", "slices", "problem"),
    [
        ("1g.10gb", 7, "found '1g.10gb', expected instances of one MIG profile, such as 7x1g.10gb or 2x3g.40gb"),
        ("CPX/NPS4", 7, "expected instances of one MIG profile"),
        ("1x3g.40gb, 4x1g.10gb", 7, "expected instances of one MIG profile"),
        ("7x1g.10gb", None, "found '7x1g.10gb', but NVIDIA lists no MIG for this chip"),
        ("4x2g.20gb", 7, "but the chip has 7 slices and 80 GB for its instances"),
        ("2x3g.71gb", 7, "but the chip has 7 slices and 80 GB for its instances"),
    ],
)
def test_mig_instances_that_a_chip_cannot_have(partition, slices, problem):
    with pytest.raises(PartitionError) as error:
        count_mig(partition, slices, 80)
    assert problem in str(error.value)


@pytest.mark.parametrize("text", [None, "", "CPX/NPS4", "8x1g.10gb", "x" * 99])
def test_what_is_no_mig(text):
    assert mig_instances(text) == 0
