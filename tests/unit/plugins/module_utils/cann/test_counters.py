# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of Huawei's chips, in the forms of Huawei's manuals."""

from __future__ import annotations

import re

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import parse_table
from ansible_collections.baremetal.inference.plugins.module_utils.cann.counters import commands_of, parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

from tests.fakes.ascend import TABLE_950, duo_table

CHIP = "0000:c1:00.0"
TABLE = """\
| 2     910B4               | {health:<13} | 86.3        41                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3402 / 65536         |
"""
ECC = """\
        NPU ID                                   : 2
        HBM Single Bit Error Count               : 4
        HBM Double Bit Error Count               : 0
        HBM Single Bit Aggregate Total Err Cnt   : 90
        HBM Single Bit Isolated Pages Count      : 1
        Chip ID                                  : 0
"""
PCIE = (
    "NPU ID                         : 2\nRX Error Count                 : 991\nRetry Count                    : 415\n"
)
HCCS = """
\thccs health status             : OK
\thccs tx packets                : [1993002168   1434439505   1588783520]
\thccs retry count               : [0            3            2]
\thccs error count               : [0            0            0]
"""


def counters(health="OK", ecc=ECC, hccs=HCCS):
    answers = [CommandResult(0, ecc), CommandResult(0, PCIE), CommandResult(0, hccs)]
    return parse_counters(CommandResult(0, TABLE.format(health=health)), {("2", "0"): answers})


def test_a_chip():
    (chip,) = counters().chips
    assert chip.chip == CHIP
    assert chip.errors == {
        "HBM Single Bit Error Count": 4,
        "HBM Double Bit Error Count": 0,
        "HBM Single Bit Isolated Pages Count": 1,
        "RX Error Count": 991,
        "Retry Count": 415,
        "hccs retry count": 5,
        "hccs error count": 0,
    }
    assert (chip.celsius, chip.watts, chip.faults) == ({"chip": 41}, 86.3, ())


def test_what_is_asked_for_a_chip():
    (row,) = parse_table(TABLE.format(health="OK"))
    assert commands_of(row) == [
        ("npu-smi", "info", "-t", "ecc", "-i", "2", "-c", "0"),
        ("npu-smi", "info", "-t", "pcie-err", "-i", "2", "-c", "0"),
        ("npu-smi", "info", "-t", "hccs", "-i", "2", "-c", "0"),
    ]


def test_the_chips_of_a_950_host():
    well, ill = parse_counters(CommandResult(0, TABLE_950), {("1", ""): [CommandResult(0, ECC)]}).chips
    assert (well.chip, well.faults, well.watts, well.celsius) == ("0000:61:00.0", (), 195.1, {"chip": 56})
    assert (well.utilization, well.memory_used, well.memory_total) == (0.03, 5240 * 2**20, 131072 * 2**20)
    assert (ill.faults, ill.errors["HBM Single Bit Error Count"]) == (("npu-smi reports the health Alarm",), 4)
    assert commands_of(parse_table(TABLE_950)[1])[0] == ("npu-smi", "info", "-t", "ecc", "-i", "1")


def test_chips_without_a_bus_id_have_their_own_numbers():
    text = re.sub(r"0000:[67]1:00\.0", "NA          ", TABLE_950)
    assert [chip.chip for chip in parse_counters(CommandResult(0, text), {}).chips] == ["npu 0", "npu 1"]


def test_the_power_of_a_card_of_two_chips_counts_once():
    """The form of Atlas 800 A3: its second chip has a dash, and a temperature of its own."""
    rows = TABLE.format(health="OK"), TABLE.format(health="OK").replace("86.3        41", "-           37")
    text = "".join(rows).replace("| 0                         | 0000:C1", "| 1     1                   | 0000:C2", 2)
    first, second = parse_counters(CommandResult(0, text), {}).chips
    assert (first.watts, second.watts) == (86.3, None)
    assert (first.celsius, second.celsius) == ({"chip": 41}, {"chip": 37})


def test_links_that_are_not_counted_in_numbers():
    (chip,) = counters(hccs="hccs error count : [NA NA]\nhccs retry count : NA\n").chips
    assert not any(name.startswith("hccs") for name in chip.errors)


@pytest.mark.parametrize("health", ["UNKNOWN", "NA", "Offline"])
def test_a_health_that_is_not_known_is_a_fault(health):
    (chip,) = counters(health).chips
    assert chip.faults == ("npu-smi reports an unknown health",)


def test_a_chip_that_is_ill_and_answers_nothing_else():
    (chip,) = counters("Alarm", "This device does not support querying ecc.\n").chips
    assert chip.faults == ("npu-smi reports the health Alarm",)
    assert "HBM Single Bit Error Count" not in chip.errors


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_the_name_of_a_process_says_nothing_about_a_chip(end):
    """Any user of the chips chooses it, also a character at which Python ends a line."""
    forged = TABLE.format(health="Alarm").replace("\n", end).replace("86.3", "99.9")
    processes = f"| NPU     Chip | Process id | Process name |\n| 2       0    | 139667     | {end}{forged} |\n"
    table = CommandResult(0, TABLE.format(health="OK") + processes)
    assert parse_counters(table, {}) == parse_counters(CommandResult(0, TABLE.format(health="OK")), {})


def test_a_tool_that_fails():
    answer = parse_counters(CommandResult(255, "dcmi module initialize failed. ret is -8005\n"), {})
    assert answer.problem == "npu-smi info reports no chips: dcmi module initialize failed. ret is -8005"


def test_chips_behind_one_bus_id_keep_their_own_counters():
    table = CommandResult(0, duo_table("one_card"))
    details = {("2", chip): [CommandResult(0, f"RX Error Count : {count}\n")] for chip, count in (("0", 5), ("1", 7))}
    found = parse_counters(table, details)
    assert [(chip.chip, chip.errors["RX Error Count"]) for chip in found.chips] == [
        ("0000:01:00.0", 5),
        ("0000:01:00.0", 7),
    ]
    # They have no HBM, and each has its own memory.
    assert [chip.memory_total for chip in found.chips] == [44280 * 2**20, 43693 * 2**20]
    assert {chip.celsius["chip"] for chip in found.chips} == {45}
