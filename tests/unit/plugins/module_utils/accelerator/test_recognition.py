# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.cpu_host import parse_cpu
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.pci_host import read_functions
from ansible_collections.baremetal.inference.plugins.module_utils.accelerator.recognition import (
    AcceleratorError,
    check_declared,
    disagreement,
    match,
    partition_disagreement,
    unusable,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.accelerators import load_catalogue

from tests.fakes.sysfs import ASPEED, MEMINFO, RECORDED_H200_VM, arm, line, lines, write_sysfs, x86

CATALOGUE = load_catalogue()
NVSWITCHES = lines("10de:22a3", 4, first=0x80, pci_class="0680")
HGX_H200 = [*lines("10de:2335", 8), *NVSWITCHES, ASPEED]


@pytest.fixture
def detect(tmp_path):
    """Return what is detected on a host with these PCI functions."""

    def run(functions, cpuinfo=None, catalogue=CATALOGUE, drivers=None):
        write_sysfs(tmp_path, functions)
        cpu = parse_cpu(cpuinfo or x86(), MEMINFO, 2, "x86_64")
        return match(read_functions(str(tmp_path)), catalogue, cpu, drivers)

    return run


def test_eight_h200_with_their_switches(detect):
    found = detect(HGX_H200)
    assert (found.model, found.stack, found.generation, found.vendor) == ("h200", "cuda", "hopper", "nvidia")
    assert (found.count, found.models, found.mixed) == (8, {"h200": 8}, False)
    assert (found.memory_mib, found.compute_capability) == (141 * 1024, "9.0")
    assert [device["numa_node"] for device in found.devices] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [switch["title"] for switch in found.switches] == ["NVSwitch of HGX H100 and H200"] * 4
    assert found.unknown == []
    assert unusable(found, CATALOGUE) is None


def test_one_device_as_people_see_it(detect):
    assert detect(lines("10de:2335", 1)).devices == [
        {
            "address": "0000:10:00.0",
            "vendor_id": "10de",
            "device_id": "2335",
            "class": "0302",
            "numa_node": 0,
            "model": "h200",
            "form": "SXM",
            "memory_mib": 144384,
        }
    ]


def test_the_recorded_machine_with_one_h200(detect):
    found = detect(RECORDED_H200_VM)
    assert (found.model, found.count) == ("h200", 1)
    assert [(device["address"], device["numa_node"]) for device in found.devices] == [("0000:00:06.0", None)]


def test_eight_mi300x_of_class_1200(detect):
    found = detect(lines("1002:74a1", 8, pci_class="1200"))
    assert (found.model, found.count, found.stack, found.generation) == ("mi300x", 8, "rocm", "gfx942")
    assert found.memory_mib == 192 * 1024


def test_a_catalogued_chip_counts_whatever_its_class(detect):
    assert detect(lines("1002:740f", 4, pci_class="0380")).models == {"mi210": 4}


def test_virtual_functions_count_in_a_virtual_machine_and_not_beside_the_chip(tmp_path):
    vfs = lines("1002:74b5", 2, first=0x20, pci_class="1200")
    cpu = parse_cpu(x86(), MEMINFO, 1, "x86_64")
    guest = write_sysfs(tmp_path / "guest", vfs)
    assert match(read_functions(str(guest)), CATALOGUE, cpu).models == {"mi300x": 2}
    host = write_sysfs(tmp_path / "host", [line("1002:74a1", 0x10, "1200"), *vfs])
    for bus in ("20", "21"):
        os.symlink("../0000:10:00.0", host / f"bus/pci/devices/0000:{bus}:00.0/physfn")
    assert match(read_functions(str(host)), CATALOGUE, cpu).models == {"mi300x": 1}


def test_sixteen_dies_of_an_atlas_a3(detect):
    console = line("19e5:1711", 1, "0300")  # the management controller's, on every Huawei server
    found = detect([*lines("19e5:d803", 16, pci_class="1200"), console], arm(part="0xd01", implementer="0x48"))
    assert (found.model, found.stack, found.generation, found.vendor) == ("ascend_a3", "cann", "ascend_a3", "ascend")
    assert (found.count, found.devices_per_card, found.memory_mib) == (16, 2, 64 * 1024)
    assert found.unknown == []
    assert found.cpu["model"] == "Kunpeng-920"


def test_a_mixed_host_is_named_after_the_most_numerous_and_says_so(detect):
    found = detect([*lines("10de:26b9", 2, first=0x60), *lines("10de:2335", 8)])
    assert (found.model, found.count, found.mixed) == ("h200", 8, True)
    assert found.models == {"h200": 8, "l40s": 2}
    assert found.memory_mib == 141 * 1024


def test_a_chip_that_can_be_served_on_goes_before_more_of_those_that_cannot(detect):
    found = detect([*lines("10de:1db5", 4), *lines("10de:26b9", 2, first=0x60)])
    assert (found.model, found.count) == ("l40s", 2)
    assert unusable(found, CATALOGUE) is None


L4_AND_H100_NVL = [line("10de:27b8", 0x01), line("10de:2321", 0x41), line("10de:2321", 0x81)]
STATION_A100 = [*(line("10de:20b2", bus) for bus in (0x01, 0x47, 0x81, 0xC2)), line("10de:1fb0", 0xC1, "0300")]


def test_the_driver_numbers_chips_of_all_models_by_their_addresses(detect):
    found = detect(L4_AND_H100_NVL)
    assert (found.model, found.count, found.numbers) == ("h100_nvl", 2, {"h100_nvl": [1, 2], "l4": [0]})


def test_a_display_that_nobody_serves_on_has_a_number_among_the_chips(detect):
    found = detect(STATION_A100)
    assert (found.model, found.count, found.mixed, found.unknown) == ("a100", 4, False, [])
    assert found.numbers == {"a100": [0, 1, 2, 4]}


@pytest.mark.parametrize(
    "functions",
    [
        HGX_H200,
        [*lines("10de:2335", 8), *lines("1002:74a1", 2, first=0x60, pci_class="1200")],
        # Nothing says how Huawei's driver numbers chips of two models.
        [*lines("19e5:d500", 2, pci_class="1200"), line("19e5:d802", 1, "1200")],
    ],
)
def test_chips_without_others_of_the_vendor_need_no_numbers(detect, functions):
    assert detect(functions).numbers == {}


def test_what_the_vendors_driver_does_not_drive_has_no_number(detect, tmp_path):
    (tmp_path / "bus/pci/drivers/nvidia/0000:41:00.0").mkdir(parents=True)
    # The L4 is passed to a virtual machine. A chip that the driver lost keeps its place: the plan stays the same.
    assert detect(L4_AND_H100_NVL).numbers == {"l4": [0]}


def test_graphics_of_a_processor_are_among_the_chips_of_rocm_and_a_console_is_not(detect, tmp_path):
    (tmp_path / "bus/pci/drivers/amdgpu/0000:0e:00.0").mkdir(parents=True)
    card, graphics, console = line("1002:7551", 3, "0300"), line("1002:13c0", 0xE, "0300"), line("1002:515e", 1, "0300")
    found = detect([console, card, graphics])
    assert (found.models, found.numbers) == ({"r9700": 1}, {"r9700": [0]})


@pytest.mark.parametrize(
    ("functions", "model"),
    [
        # As many of each: the one with more memory. The alphabet decides nothing.
        ([line("10de:24b0", 1), line("10de:2bb1", 9)], "rtx_pro_6000"),
        ([line("10de:2bb1", 1), line("10de:31c2", 9)], "gb300"),
        ([line("10de:27b8", 1), line("10de:2321", 0x41), line("10de:27b8", 0x42)], "l4"),
    ],
)
def test_the_model_with_more_memory_leads_among_as_many(detect, functions, model):
    assert detect(functions).model == model


def test_the_declared_model_leads(tmp_path):
    cpu = parse_cpu(x86(), MEMINFO, 1, "x86_64")
    functions = read_functions(str(write_sysfs(tmp_path, L4_AND_H100_NVL)))
    found = match(functions, CATALOGUE, cpu, declared="l4")
    assert (found.model, found.count, disagreement("l4", 1, found)) == ("l4", 1, None)
    assert match(functions, CATALOGUE, cpu, declared="h200").model == "h100_nvl"


def test_the_smallest_memory_of_a_model_counts(detect):
    assert detect([*lines("10de:20b2", 2), *lines("10de:20b0", 2, first=0x60)]).memory_mib == 40 * 1024


def test_memory_that_is_shared_with_the_host_is_not_guessed(detect):
    assert detect(lines("1002:1586", 1, pci_class="0380")).memory_mib is None


@pytest.mark.parametrize(
    "function",
    [
        ASPEED,
        line("102b:0538", 3, "0300"),  # Matrox
        line("1af4:1050", 3, "0300"),  # virtio
        line("8086:4680", 3, "0300"),  # graphics of a desktop processor
        line("8086:7d1d", 3, "1200"),  # NPU of a laptop processor
        line("1002:164e", 3, "0300"),  # graphics of a server processor
        line("19e5:1711", 3, "0300"),  # Huawei's management controller
        line("10de:22be", 3, "0403"),  # the sound of a graphics card
    ],
)
def test_consoles_and_everyday_graphics_are_no_accelerators(detect, function):
    found = detect([function, "0000:00:00.0 vendor=0x8086 device=0x0d57 class=0x060000 numa=0"])
    assert (found.model, found.stack, found.generation, found.vendor, found.count) == ("cpu", "cpu", "cpu", "cpu", 1)
    assert (found.memory_mib, found.devices, found.unknown) == (1547642, [], [])
    assert found.cpu["instruction_sets"] == ["avx2", "avx512f", "avx512_bf16", "amx_bf16"]
    assert unusable(found, CATALOGUE) is None


def test_catalogued_intel_cards_count_though_other_intel_graphics_do_not(detect):
    found = detect([*lines("8086:e223", 4, pci_class="0300"), line("8086:4680", 3, "0300")])
    assert (found.model, found.stack, found.count) == ("arc_pro_b70", "xpu", 4)
    assert found.unknown == []


def test_an_unknown_chip_of_a_known_vendor_is_an_error_with_address_id_and_file(detect):
    found = detect(lines("10de:9999", 2))
    assert (found.model, found.stack, found.vendor, found.count) == ("unknown", "unknown", "nvidia", 2)
    problem = unusable(found, CATALOGUE)
    assert "10de:9999 (class 0302) at 0000:10:00.0, 0000:11:00.0 is not in" in problem
    assert "catalog/accelerators/nvidia.yml" in problem
    assert "accelerator_catalog_path" in problem


def test_an_unknown_chip_beside_known_ones_is_not_overlooked(detect):
    found = detect([*lines("10de:2335", 8), line("1da3:9999", 0x70, "1200")])
    assert (found.model, found.count, found.mixed, found.models) == ("h200", 8, True, {"h200": 8})
    assert [entry["vendor"] for entry in found.unknown] == ["intel"]
    assert "1da3:9999 (class 1200) at 0000:70:00.0" in unusable(found, CATALOGUE)


def test_a_site_can_leave_chips_alone(detect, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "nvidia.yml").write_text('vendor: nvidia\nignored: {"10de:1eb8": "console", "10de:9999": "console"}\n')
    functions = [line("10de:1eb8", 1), line("10de:9999", 2)]
    (tmp_path / "sys").mkdir()
    write_sysfs(tmp_path / "sys", functions)
    cpu = parse_cpu(x86(), MEMINFO, 1, "x86_64")
    assert match(read_functions(str(tmp_path / "sys")), load_catalogue([own]), cpu).model == "cpu"


def test_a_chip_that_vllm_cannot_serve_on_is_an_error_with_the_reason(detect):
    problem = unusable(detect(lines("10de:1db5", 2)), CATALOGUE)
    assert "NVIDIA V100: vLLM needs compute capability 7.5, this chip has 7.0" in problem
    assert "v100 x 2 at 0000:10:00.0, 0000:11:00.0" in problem


def test_an_x86_without_avx2_and_without_accelerator_is_an_error(detect):
    problem = unusable(detect([ASPEED], x86("fpu sse4_2 avx")), CATALOGUE)
    assert "the processor (Intel(R) Xeon(R) 6980P) has no AVX2" in problem


def test_beside_an_accelerator_the_processor_does_not_matter_nor_does_avx2_on_arm(tmp_path):
    def problem(name, functions, cpuinfo):
        functions = read_functions(str(write_sysfs(tmp_path / name, functions)))
        return unusable(match(functions, CATALOGUE, parse_cpu(cpuinfo, MEMINFO, 1, "x86_64")), CATALOGUE)

    assert problem("old", lines("10de:2335", 1), x86("fpu")) is None
    assert problem("arm", [ASPEED], arm()) is None


@pytest.mark.parametrize(("declared", "count"), [("h200", 8), ("h200", None), (None, 8), (None, None)], ids=str)
def test_declared_and_detected_agree(detect, declared, count):
    assert disagreement(declared, count, detect(HGX_H200)) is None


def test_a_card_with_two_chips_behind_one_function_may_be_declared_with_both(detect):
    found = detect(lines("19e5:d500", 4, pci_class="1200"))
    assert disagreement("ascend_310p", 8, found) is None
    assert disagreement("ascend_310p", 4, found) is None
    assert disagreement("ascend_310p", 16, found)


def test_declared_and_detected_agree_on_a_mixed_host_about_what_is_planned_for(detect):
    found = detect([*lines("10de:2335", 8), *lines("10de:26b9", 2, first=0x60)])
    assert disagreement("h200", 8, found) is None
    assert "declared l40s x 2, found h200 x 8, l40s x 2 at " in disagreement("l40s", 2, found)


@pytest.mark.parametrize(
    ("declared", "count", "functions", "expected"),
    [
        ("h200", 8, lines("10de:26b9", 2), "declared h200 x 8, found l40s x 2 at 0000:10:00.0, 0000:11:00.0; correct"),
        ("h200", 8, lines("10de:2335", 7), "declared h200 x 8, found h200 x 7 at "),
        ("h200", None, [ASPEED], "declared h200, found no accelerator (processor: Intel(R) Xeon(R) 6980P); correct"),
        (None, 8, lines("10de:2335", 4), "declared h200 x 8, found h200 x 4 at "),
        ("mi300x", 8, lines("1002:9999", 8, pci_class="1200"), "declared mi300x x 8, found unknown x 8 at "),
        ("cpu", None, lines("10de:2335", 1), "declared cpu, found h200 x 1 at 0000:10:00.0; correct"),
    ],
)
def test_a_difference_names_both(detect, declared, count, functions, expected):
    assert disagreement(declared, count, detect(functions)).startswith(expected)


def test_a_difference_says_what_to_do(detect):
    found = detect(lines("10de:2335", 1))
    assert "off, unseated or not passed through" in disagreement("h200", 8, found)
    assert "to leave these chips alone, list their ids under 'ignored'" in disagreement("cpu", None, found)


@pytest.mark.parametrize("declared", ["h200", "ascend_a3", "cpu"])
def test_what_can_be_declared(declared):
    check_declared(declared, CATALOGUE)


@pytest.mark.parametrize(
    ("declared", "near"), [("h200x", "h200"), ("H200", "h200"), ("mi300", "mi300x"), ("cpus", "cpu")]
)
def test_a_misspelt_declaration_gets_the_nearest_name(declared, near):
    with pytest.raises(AcceleratorError, match=f"accelerator '{declared}' of the inventory .*; nearest: '{near}'"):
        check_declared(declared, CATALOGUE)


def test_the_fact_is_plain_data_with_the_vendors_own_driver(detect):
    drivers = {"nvidia": {"version": "580.159.04"}, "amd": {"version": "6.14", "mec_firmware": 175}}
    fact = json.loads(json.dumps(detect(HGX_H200, drivers=drivers).as_dict()))
    assert (fact["model"], fact["count"], fact["memory_mib"]) == ("h200", 8, 144384)
    assert (fact["driver_version"], fact["mec_firmware"]) == ("580.159.04", None)


@pytest.mark.parametrize(
    ("declared", "found", "begins"),
    [
        ("CPX/NPS4", "CPX/NPS4", None),
        ("CPX", "CPX/NPS4", None),
        (None, "SPX/NPS1", None),
        ("CPX/NPS4", None, None),
        (None, "CPX/NPS4", "accelerator_partition is not set, found CPX/NPS4; set it to what the chips are in"),
        ("CPX/NPS4", "SPX/NPS1", "accelerator_partition: declared CPX/NPS4, found SPX/NPS1; set it to what"),
        ("CPX/NPS4", "CPX/NPS4, SPX/NPS1", "accelerator_partition: declared CPX/NPS4, found CPX/NPS4, SPX/NPS1; "),
    ],
)
def test_modes_that_differ_from_the_declared_ones(detect, declared, found, begins):
    answer = partition_disagreement(declared, replace(detect(HGX_H200), partition=found))
    assert answer is None if begins is None else answer.startswith(begins)
