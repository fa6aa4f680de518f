# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers of AMD's tools and of the kernel, in the forms that they were recorded or documented in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.answers import (
    GpuAnswer,
    chip_address,
    gfx_of,
    parse_amd_smi,
    parse_kfd,
    parse_messages,
    parse_rocm_smi,
)

FIXTURE = Path(__file__).parents[4] / "fixtures/rocm-debian13/no-driver.json"
RECORDED = json.loads(FIXTURE.read_text(encoding="utf-8"))["answers"]
MI300X = GpuAnswer("0000:0c:00.0", "AMD Instinct MI300X", "gfx942", "6.16.13")


def entry(bdf, name="AMD Instinct MI300X", gfx="gfx942", version="6.16.13"):
    asic = {"market_name": name, "target_graphics_version": gfx}
    return {"asic": asic, "bus": {"bdf": bdf}, "driver": {"name": "amdgpu", "version": version}}


@pytest.mark.parametrize("wrap", [lambda rows: {"gpu_data": rows}, lambda rows: rows], ids=["ROCm 7", "ROCm 6"])
def test_amd_smi_lists_each_chip_once_whatever_its_partitions(wrap):
    text = "WARNING: User is missing the following required groups: render\n"
    text += json.dumps(wrap([entry("0000:0C:00.0"), entry("0000:0C:00.1"), entry("0000:85:00.0", "N/A", "n/a", "N/A")]))
    assert parse_amd_smi(text) == [MI300X, GpuAnswer("0000:85:00.0")]


@pytest.mark.parametrize(
    "text", ["", "[]x", "{}", '{"gpu_data": {}}', '[1, {"bus": 1}, {"bus": {"bdf": "N/A"}}]', "[[]]"]
)
def test_what_is_no_list_of_chips_lists_none(text):
    assert parse_amd_smi(text) == []


@pytest.mark.parametrize("answer", RECORDED.values(), ids=RECORDED)
def test_tools_without_a_driver_list_no_chip(answer):
    assert parse_amd_smi(answer["out"]) == parse_rocm_smi(answer["out"]) == []


def test_rocm_smi_lists_cards_and_no_other_keys():
    document = {
        "system": {"PCI Bus": "0000:FF:00.0"},
        "card1": {"PCI Bus": "0000:85:00.0", "Card series": "Radeon AI PRO R9700", "GFX Version": "gfx1201"},
        "card0": {"PCI Bus": "0000:0C:00.0", "Card Series": "AMD Instinct MI300X"},
        "card2": {"PCI Bus": "0000:0C:00.1"}, "card3": {"GFX Version": "gfx942"},
    }  # fmt: skip
    assert parse_rocm_smi(json.dumps(document)) == [
        GpuAnswer("0000:0c:00.0", "AMD Instinct MI300X"), GpuAnswer("0000:85:00.0", "Radeon AI PRO R9700", "gfx1201"),
    ]  # fmt: skip
    assert parse_rocm_smi("[]") == []


NODE = (
    "simd_count {simd}\nvendor_id {vendor}\nlocation_id {place}\ndomain {domain}\ngfx_target_version 90402\nname x y\n"
)


def test_kfd_lists_chips_among_processors_and_chips_of_others():
    nodes = [
        NODE.format(simd=0, vendor=4098, place=0, domain=0), NODE.format(simd=1216, vendor=4318, place=256, domain=0),
        NODE.format(simd=1216, vendor=4098, place=(0x0C << 8) | (2 << 3), domain=1),
        # A partition of the same chip.
        NODE.format(simd=304, vendor=4098, place=(0x0C << 8) | (2 << 3) | 1, domain=1), "simd_count x\n\nvendor_id\n",
    ]  # fmt: skip
    assert parse_kfd(nodes) == [GpuAnswer("0001:0c:02.0", generation="gfx942")]


@pytest.mark.parametrize(
    ("number", "target"),
    [(90010, "gfx90a"), (90402, "gfx942"), (90500, "gfx950"), (120001, "gfx1201"), (110003, "gfx1103"), (0, "")],
)
def test_the_number_of_a_generation_is_its_target_as_compilers_name_it(number, target):
    assert gfx_of(number) == target


@pytest.mark.parametrize(
    ("line", "chip", "message"),
    [
        ("amdgpu 0000:0c:00.0: amdgpu: GPU reset begin!", "0000:0c:00.0", "GPU reset begin!"),
        ("amdgpu 0000:0C:00.0: GPU", None, ""), ("amdgpu: Topology: Add CPU node", "", "Topology: Add CPU node"),
        ("[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout", "", "ring gfx timeout"),
        ("amdgpu 0000:0c:00.1: amdgpu: {12} socket: 0, die: 1, hbm: 3", "0000:0c:00.0", "hbm: 3"),
        ("nvidia: amdgpu 0000:0c:00.0: GPU reset", None, ""), ("amdgpuish", None, ""),
    ],
)  # fmt: skip
def test_messages_of_the_driver_are_read_with_their_chip(line, chip, message):
    found = parse_messages(f"other: x\n{line}\n")
    assert (found == []) if chip is None else (found == [(chip, message)])


def test_a_partition_has_the_address_of_its_chip():
    assert chip_address(" 0000:0C:00.3\n") == "0000:0c:00.0"
