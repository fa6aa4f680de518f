# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of AMD's chips, in the forms of amd-smi that others have published."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.counters import parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

METRIC = {
    "gpu": 0,
    "power": {"socket_power": {"value": 741, "unit": "W"}},
    "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}, "mem": {"value": 58, "unit": "C"}},
    "pcie": {"width": 16, "replay_count": 3, "nak_sent_count": "N/A"},
    "ecc": {"total_correctable_count": 5, "total_uncorrectable_count": 0, "total_deferred_count": "N/A"},
    "throttle": {"prochot_accumulated": 0, "socket_thermal_accumulated": 7, "ppt_violation_status": "ACTIVE"},
}
STATIC = {"gpu": 0, "bus": {"bdf": "0000:05:00.0"}}


def counters(metric, static, log=""):
    answers = [CommandResult(0, text if isinstance(text, str) else json.dumps(text)) for text in (metric, static)]
    return parse_counters(answers, log)


@pytest.mark.parametrize("older", [False, True])
def test_a_chip_in_both_shapes(older):
    documents = ([METRIC], [STATIC]) if older else ({"gpu_data": [METRIC]}, {"gpu_data": [STATIC]})
    answer = counters(*documents)
    (chip,) = answer.chips
    assert (answer.problem, chip.chip) == ("", "0000:05:00.0")
    assert chip.errors == {"ECC correctable": 5, "ECC uncorrectable": 0, "PCIe replays": 3}
    assert chip.slowed == {"prochot": 0, "socket_thermal": 7}
    assert (chip.slowing, chip.capped) == ((), True)
    assert (chip.celsius, chip.watts, chip.link_width) == ({"hotspot": 71, "mem": 58}, 741, 16)


@pytest.mark.parametrize("value", ["N/A", None, "", {"value": "N/A", "unit": "W"}, "AMDSMI_STATUS_NO_DATA"])
def test_a_chip_of_which_nothing_is_known_is_not_healthy(value):
    entry = {name: value if not isinstance(each, dict) else dict.fromkeys(each, value) for name, each in METRIC.items()}
    entry["gpu"] = 0
    answer = counters([entry], [STATIC])
    assert [chip.faults for chip in answer.chips] == [("the tool has no value of the chip",)]
    assert counters([METRIC], [STATIC]).chips[0].faults == ()


def test_messages_around_the_document_hide_no_chip():
    metric = f"WARNING: [amdsmi] gpu {{3}} is busy\n{json.dumps([METRIC])}\nDone [ok].\n"
    (chip,) = counters(metric, [STATIC]).chips
    assert chip.chip == "0000:05:00.0"


def test_a_chip_that_is_too_hot_now():
    hot = {**METRIC, "throttle": {"hbm_thermal_violation_status": "ACTIVE"}}
    assert counters([hot], [STATIC]).chips[0].slowing == ("hbm_thermal",)


def test_errors_of_links_between_chips_are_counted():
    blocks = {"UMC": {"correctable_count": 3}, "XGMI_WAFL": {"correctable_count": 2, "uncorrectable_count": "N/A"}}
    errors = counters([{**METRIC, "ecc_blocks": blocks}], [STATIC]).chips[0].errors
    assert {name: count for name, count in errors.items() if "XGMI" in name} == {"XGMI correctable": 2}
    assert not any("XGMI" in name for name in counters([{**METRIC, "ecc_blocks": "N/A"}], [STATIC]).chips[0].errors)


def test_the_parts_of_a_chip_are_one_chip_with_the_values_of_the_first():
    # The usage of the first part is that of ROCm 7.0.2 on an MI300X in DPX, by https://github.com/ROCm/amdsmi/issues/134.
    # The second part has another form there. N/A is what amd-smi writes for values that it lacks: a guess here.
    idle = {"value": 0, "unit": "%"}
    busy = {f"xcp_{part}": [*[idle] * 4, *["N/A"] * 4] for part in range(2)}
    first = {**METRIC, "usage": {"gfx_activity": idle, "mm_activity": "N/A", "gfx_busy_inst": busy}}
    second = {"gpu": 1, "usage": "N/A", "power": "N/A", "temperature": "N/A", "ecc": "N/A", "pcie": "N/A"}
    static = [STATIC, {"gpu": 1, "bus": {"bdf": "0000:05:00.1"}}]
    (chip,) = counters({"gpu_data": [first, second]}, {"gpu_data": static}).chips
    assert (chip.chip, chip.watts, chip.utilization) == ("0000:05:00.0", 741, 0)
    assert chip.errors["ECC correctable"] == 5


def test_without_addresses_a_chip_has_its_number():
    assert counters([METRIC], "not JSON").chips[0].chip == "gpu 0"


def test_errors_in_the_kernels_log_belong_to_their_chip():
    log = (
        "amdgpu 0000:05:00.0: amdgpu: socket: 0 1 uncorrectable hardware errors detected in umc block\n"
        "amdgpu 0000:05:00.0: amdgpu: GPU reset begin!\n"
        "amdgpu 0000:05:00.0: amdgpu: GPU reset begin!\n"
        "amdgpu 0000:26:00.0: amdgpu: ring comp_1.0.0 timeout, signaled seq=7\n"
    )
    here, other = counters([METRIC], [STATIC], log).chips
    assert (here.errors["uncorrectable errors in the kernel's log"], here.errors["GPU resets"]) == (1, 2)
    assert (other.chip, other.errors) == ("0000:26:00.0", {"ring timeouts": 1})


def test_a_tool_that_fails():
    answer = parse_counters([CommandResult(255, err="ERROR: driver not initialized\n"), CommandResult(127)], "")
    assert answer.problem == "amd-smi metric --json reports no chips: ERROR: driver not initialized"
