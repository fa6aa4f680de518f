# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.planning.hardware import (
    Accelerator,
    exact_blocks,
    generation_blocks,
)

H200 = Accelerator("h200", "cuda", "hopper", "nvidia", 8, 141 * 1024, compute_capability="9.0")
A100 = Accelerator("a100", "cuda", "ampere", "nvidia", 8, 80 * 1024, compute_capability="8.0")
MI355X = Accelerator("mi355x", "rocm", "gfx950", "amd", 8)
A3 = Accelerator("ascend_a3", "cann", "ascend_a3", "ascend", 16)
ARC = Accelerator("arc_pro_b70", "xpu", "battlemage", "intel", 4)
CPU = Accelerator("cpu", "cpu", "cpu", "cpu", 1)


@pytest.mark.parametrize(
    ("accelerator", "names"),
    [
        (H200, ["h200_8x", "h200", "arch:sm90", "hopper", "nvidia", "default"]),
        (MI355X, ["mi355x_8x", "mi355x", "arch:gfx950", "gfx950", "amd", "default"]),
        (A3, ["ascend_a3_16x", "ascend_a3", "ascend_910c", "npu", "ascend", "huawei", "default"]),
        (ARC, ["arc_pro_b70_4x", "arc_pro_b70", "battlemage", "xpu", "intel", "default"]),
        (CPU, ["cpu_1x", "cpu", "xeon6", "xeon5", "intel", "default"]),
    ],
)
def test_the_words_that_mean_a_host_the_most_exact_first(accelerator, names):
    assert list(accelerator.names) == names


def test_a_station_with_one_chip_is_a_system_of_its_own():
    assert "dgx_station_gb300" in Accelerator("gb300", "cuda", "blackwell", "nvidia", 1).ids
    assert "dgx_station_gb300" not in Accelerator("gb300", "cuda", "blackwell", "nvidia", 4).ids
    assert "dgx_spark_gb10" in Accelerator("gb10", "cuda", "blackwell", "nvidia", 1).ids


@pytest.mark.parametrize(
    ("entries", "value"),
    [
        ({"h200": 1, "hopper": 2, "nvidia": 3, "default": 4}, 1),
        ({"hopper": 2, "nvidia": 3, "default": 4}, 2),
        ({"nvidia": 3, "default": 4}, 3),
        ({"amd": 3, "default": 4}, 4),
        ({"h200_8x": 0, "h200": 1}, 0),
        ({"h200": None, "hopper": 2}, 2),
        ({"b200": 1}, None),
        ({}, None),
        (7, 7),
        (None, None),
    ],
)
def test_the_most_exact_entry_of_a_map_counts(entries, value):
    assert H200.pick(entries) == value


@pytest.mark.parametrize(
    ("accelerator", "overrides", "found"),
    [
        (H200, ["hopper", "nvidia"], ["hopper"]),
        (H200, ["nvidia", "blackwell"], ["nvidia"]),
        (A100, ["ampere", "hopper", "nvidia"], ["ampere"]),
        (MI355X, ["amd", "gfx950", "gfx942"], ["amd", "gfx950"]),
        (MI355X, ["nvidia"], []),
        (A3, ["npu", "ascend_a3"], ["npu", "ascend_a3"]),
        (ARC, ["xpu"], ["xpu"]),
        (CPU, ["cpu"], ["cpu"]),
    ],
)
def test_blocks_of_the_generation(accelerator, overrides, found):
    blocks = {name: {"extra_args": [name]} for name in overrides}
    assert list(generation_blocks(accelerator, blocks)) == [(name, blocks[name]) for name in found]


def test_an_empty_block_of_the_generation_keeps_the_vendor_s_away():
    assert list(generation_blocks(H200, {"hopper": None, "nvidia": {"extra_args": ["--x"]}})) == []


def test_no_overrides_at_all():
    assert list(generation_blocks(H200, None)) == list(exact_blocks(H200, None)) == []


def test_blocks_of_the_exact_hardware_the_most_exact_last():
    blocks = {"h200_8x": {"extra_args": ["a"]}, "h200": {"extra_args": ["b"]}, "hopper": {"extra_args": ["c"]}}
    assert [name for name, _block in exact_blocks(H200, blocks)] == ["h200", "h200_8x"]
    # The name of these models is that of their generation: one block, once.
    assert list(exact_blocks(A3, {"ascend_a3": {"extra_args": ["a"]}})) == []
    assert list(exact_blocks(CPU, {"cpu": {"extra_args": ["a"]}})) == []


def nvidia(model, capability, count=8, generation="blackwell"):
    return Accelerator(model, "cuda", generation, "nvidia", count, compute_capability=capability)


B200 = nvidia("b200", "10.0")
GB10 = nvidia("gb10", "12.1", 1)
STATION = nvidia("gb300", "10.3", 1)
L40S = nvidia("l40s", "8.9", generation="ada")
WORKSTATION = nvidia("rtx_pro_4500", "12.0")
MI350X = Accelerator("mi350x", "rocm", "gfx950", "amd", 8)
R9700 = Accelerator("r9700", "rocm", "gfx1201", "amd", 4)


@pytest.mark.parametrize(
    ("accelerator", "systems", "covered"),
    [
        (H200, ["h100", "h200"], True),
        (H200, ["h100", "mi355x"], False),
        (H200, ["Hopper"], True),
        # None of upstream's systems: its own architecture is listed, or several of its stack.
        (WORKSTATION, ["rtx_pro_6000"], True),
        (MI350X, ["mi355x"], True),
        (A100, ["h100", "h200", "b200"], True),
        (R9700, ["mi300x", "mi355x"], True),
        # One architecture of others.
        (A100, ["gb200"], False),
        (L40S, ["gb200"], False),
        (WORKSTATION, ["gb200", "b200"], False),
        (A100, ["h100", "h200"], False),
        (R9700, ["mi355x"], False),
        (A3, ["ascend_950pr"], False),
        (A3, ["ascend_910c"], True),
        # Upstream's systems under another name here.
        (GB10, ["h100", "h200", "b200", "gb200"], False),
        (GB10, ["dgx_spark_gb10"], True),
        (STATION, ["gb200", "gb300"], False),
        (STATION, ["dgx_station_gb300"], True),
        (nvidia("gb300", "10.3", 4), ["gb300"], True),
        (B200, ["gb200"], False),
        (nvidia("rtx_5090", "12.0", 2), ["rtx_5090_2x"], True),
        (nvidia("rtx_5090", "12.0", 4), ["rtx_5090_2x"], False),
        (CPU, ["xeon6"], True),
        (A100, ["xeon6", "mi300x"], False),
    ],
)
def test_which_hardware_a_list_of_a_recipe_covers(accelerator, systems, covered):
    assert accelerator.is_listed(systems) is covered
