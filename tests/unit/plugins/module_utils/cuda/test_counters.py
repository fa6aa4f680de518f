# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of a real H200 (tests/fixtures/h200), and of one with faults written into the recording."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.baremetal.inference.plugins.module_utils.cuda.counters import parse_counters
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import CommandResult

REPORT = (Path(__file__).parents[4] / "fixtures/h200/nvidia-smi-q.xml").read_text()
CHIP = "0000:00:06.0"
XID = "NVRM: Xid (PCI:0000:00:06): {}, pid=71, name=python3\n"


def counters(text=REPORT, log="", rc=0, err=""):
    return parse_counters([CommandResult(rc, text, err)], log)


def test_the_recorded_h200():
    answer = counters()
    assert answer.problem == ""
    (chip,) = answer.chips
    assert chip.chip == CHIP
    assert chip.errors == {
        "ECC SRAM correctable": 0,
        "ECC SRAM uncorrectable (parity)": 0,
        "ECC SRAM uncorrectable (SEC-DED)": 0,
        "ECC DRAM correctable": 0,
        "ECC DRAM uncorrectable": 0,
        "remapped rows (correctable)": 0,
        "remapped rows (uncorrectable)": 0,
        "PCIe replays": 1,
        "PCIe replay roll-overs": 0,
    }
    assert chip.slowed == {"sw_therm_slowdown": 0, "hw_therm_slowdown": 0, "hw_power_brake": 0}
    assert (chip.slowing, chip.capped, chip.faults) == ((), False, ())
    assert (chip.link_width, chip.link_width_max, chip.link_gen, chip.link_gen_max) == (16, 16, 5, 5)
    assert (chip.celsius, chip.watts, chip.watts_limit) == ({"gpu": 39, "memory": 41}, 121.88, 700)


def changed(path, old, new):
    assert f"<{path}>{old}</{path}>" in REPORT
    (chip,) = counters(REPORT.replace(f"<{path}>{old}</{path}>", f"<{path}>{new}</{path}>")).chips
    return chip


def test_reasons_for_lower_clocks():
    reason = "clocks_event_reason_{}"
    assert changed(reason.format("hw_thermal_slowdown"), "Not Active", "Active").slowing == ("hw_thermal_slowdown",)
    capped = changed(reason.format("sw_power_cap"), "Not Active", "Active")
    assert (capped.capped, capped.slowing) == (True, ())
    older = REPORT.replace("clocks_event_reason", "clocks_throttle_reason").replace(
        "<clocks_throttle_reason_hw_slowdown>Not ", "<clocks_throttle_reason_hw_slowdown>"
    )
    assert counters(older).chips[0].slowing == ("hw_slowdown",)


def test_states_that_are_faults():
    assert changed("remapped_row_failure", "No", "Yes").faults == ("a bad row of memory could not be replaced",)
    assert changed("current_ecc", "Enabled", "Disabled").faults == ("ECC is off",)
    assert changed("current_ecc", "Enabled", "N/A").faults == ()
    assert changed("channel_repair_pending", "No", "Yes").faults == ("the repair of a memory channel is pending",)


def test_xids_are_counted_also_of_a_chip_that_is_gone():
    log = XID.format(94) * 2 + XID.format(63) + "NVRM: Xid (PCI:0000:81:00): 79, pid='<unknown>', GPU has fallen\n"
    here, gone = counters(log=log).chips
    assert (here.errors["Xid 94"], here.errors["Xid 63"]) == (2, 1)
    assert (gone.chip, gone.errors) == ("0000:81:00.0", {"Xid 79": 1})


def test_a_tool_that_fails():
    answer = counters("", rc=9, err="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")
    assert answer.chips == ()
    assert answer.problem.startswith("nvidia-smi -q -x reports no chips: NVIDIA-SMI has failed because it couldn't")
    assert counters("", rc=124).problem == "nvidia-smi -q -x reports no chips: exit status 124"
