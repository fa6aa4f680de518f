# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of a real H200 (tests/fixtures/h200), and of one with faults written into the recording."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.answers import parse_report
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


POWER = r"<gpu_power_readings>.*?</gpu_power_readings>"
ECC = r"(<ecc_errors>\s*<volatile>).*?(</volatile>)"


NOW = "gpu_power_readings"


@pytest.mark.parametrize(
    ("element", "draw", "limit", "watts"),
    [
        # As tests/fixtures/nvidia_boards.yml: T4 with 515, as all before 535; others before about 560.
        ("power_readings", {"power_draw": "33.78 W"}, "enforced_power_limit", 33.78),
        (NOW, {"power_draw": "26.84 W"}, "current_power_limit", 26.84),
        # A100 with 570, T4 with 595.
        (NOW, {"average_power_draw": "N/A", "instant_power_draw": "33.51 W"}, "current_power_limit", 33.51),
        (NOW, {"average_power_draw": "0.00 W", "instant_power_draw": "9.00 W"}, "current_power_limit", 0),
    ],
)
def test_the_power_in_the_form_of_each_driver(element, draw, limit, watts):
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in {**draw, limit: "70.00 W"}.items())
    text = re.sub(POWER, f"<{element}>{inner}</{element}>", REPORT, flags=re.DOTALL)
    (chip,) = counters(text).chips
    assert (chip.watts, chip.watts_limit) == (watts, 70)


def test_memory_errors_in_the_form_of_chips_before_turing():
    # A V100S with driver 460 and a P100 with 510 have no sram and dram here.
    totals = "<single_bit><total>3</total></single_bit><double_bit><total>1</total></double_bit>"
    (chip,) = counters(re.sub(ECC, rf"\g<1>{totals}\g<2>", REPORT, count=1, flags=re.DOTALL)).chips
    found = {name: count for name, count in chip.errors.items() if name.startswith("ECC")}
    assert found == {"ECC correctable": 3, "ECC uncorrectable": 1}


# As published outputs show it; the H200 of the recording stands alone, and its tool lists no link.
LINKS = """GPU 0: NVIDIA H200 (UUID: {uuid})
\t Link 0: Replay Errors: 1
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 2

\t Link 17: Replay Errors: 4
\t Link 17: Effective Errors: 900
\t Link 17: Rx General Errors: 7
GPU 1: NVIDIA H200 (UUID: GPU-11111111-1111-1111-1111-111111111111)
\t Link 0: Replay Errors: 99
"""


def test_the_errors_of_all_links_of_a_chip_are_added():
    uuid = ElementTree.fromstring(REPORT).findtext("gpu/uuid")
    answers = [CommandResult(0, REPORT), CommandResult(0, LINKS.format(uuid=uuid))]
    (chip,) = parse_counters(answers, "").chips
    found = {name: count for name, count in chip.errors.items() if name.startswith("NVLink")}
    assert found == {
        "NVLink Replay Errors": 5, "NVLink Recovery Errors": 0, "NVLink CRC Errors": 2, "NVLink Rx General Errors": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    "answer", [CommandResult(0, ""), CommandResult(1, "", "Not supported"), CommandResult(0, "Link 0: CRC Errors: 5")]
)
def test_a_chip_without_nvlink_has_no_such_counters(answer):
    (chip,) = parse_counters([CommandResult(0, REPORT), answer], "").chips
    assert not any(name.startswith("NVLink") for name in chip.errors)


@pytest.mark.parametrize(("state", "fault"), [
    ("Completed", ()), ("Not Started", ("the chip has not joined the NVLink fabric",)),
    ("In Progress", ("the chip is joining the NVLink fabric",)),
])  # fmt: skip
def test_a_chip_that_is_not_in_the_fabric_says_so(state, fault):
    text = re.sub(r"(<fabric>\s*<state>)N/A", rf"\g<1>{state}", REPORT)
    assert counters(text).chips[0].faults == fault


UNHEALTHY = "the NVLink fabric is unhealthy"
RESET = "the driver asks for a reset of the chip"


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("state", "Unhealthy", UNHEALTHY), ("state", "Something New", UNHEALTHY), ("status", "Unhealthy", UNHEALTHY),
        ("status", "Insufficient Resources", UNHEALTHY), ("summary", "Unhealthy", UNHEALTHY),
        ("summary", "Limited Capacity", "the NVLink fabric has a limited capacity"),
    ],
)  # fmt: skip
def test_an_unknown_state_of_the_fabric_is_never_healthy(path, value, fault):
    begin = "<health>\\s*<summary>" if path == "summary" else f"<fabric>.*?<{path}>"
    text = re.sub(f"({begin})N/A", rf"\g<1>{value}", REPORT, count=1, flags=re.DOTALL)
    assert counters(text).chips[0].faults == (fault,)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("Reset", RESET), ("GPU Reset", RESET), ("Drain P2P", RESET), ("Drain and Reset", RESET),
        ("Reboot", "the driver asks for a reboot of the host"),
        ("Replace", "the driver asks for a recovery that is not known"),
    ],
)  # fmt: skip
def test_a_recovery_that_the_driver_asks_for_is_a_fault(value, fault):
    assert changed("gpu_recovery_action", "None", value).faults == (fault,)


def test_older_drivers_ask_for_a_reset_in_another_field():
    status = "<gpu_reset_status><reset_required>{}</reset_required></gpu_reset_status>"
    text = REPORT.replace("<fabric>", status.format("Yes") + "<fabric>")
    assert counters(text).chips[0].faults == (RESET,)
    text = REPORT.replace("<fabric>", status.format("Requested functionality has been deprecated") + "<fabric>")
    assert counters(text).chips[0].faults == ()


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("GPU is lost", "the chip is lost"), ("[GPU is lost]", "the chip is lost"), ("[GPU requires reset]", RESET),
        ("ERR!", "the tool reports an error in place of a value"),
        ("Unknown Error", "the tool reports an error in place of a value"),
    ],
)  # fmt: skip
def test_an_error_in_the_place_of_a_value_is_a_fault(value, fault):
    assert counters(re.sub(r"(<gpu_temp>)[^<]*", rf"\g<1>{value}", REPORT)).chips[0].faults == (fault,)


LOST = (
    "Unable to determine the device handle for GPU0000:5D:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)


def test_a_chip_that_only_an_error_message_names_is_lost():
    (chip,) = counters(LOST, rc=15).chips
    assert (chip.chip, chip.faults) == ("0000:5d:00.0", ("the chip is lost",))
    for text in (LOST + REPORT, REPORT + LOST):
        here, lost = counters(text).chips
        assert (here.faults, lost.chip, lost.faults) == ((), "0000:5d:00.0", ("the chip is lost",))


# A user of the chips chooses it, and nvidia-smi escapes nothing.
NAMES = (
    "GPU is lost", "ERR!", "/tmp/requires reset", LOST.strip(), "a & b <", "\x01", "\ufffd", "]]>", "<!--", "&lost;",
    "</nvidia_smi_log>", "a\n</processes>&", 'x<gpu id="0">',
    "a\n</processes><gpu_recovery_action>Reset</gpu_recovery_action><processes>",
    "</process_name></process_info></processes><gpu_recovery_action>Reset</gpu_recovery_action>",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_process_says_nothing_about_a_chip(name):
    process = f"<process_info>\n<pid>7</pid>\n<type>C</type>\n<process_name>{name}</process_name>\n</process_info>\n"
    text = REPORT.replace("<processes>\n", f"<processes>\n{process}", 1)
    assert text != REPORT
    assert counters(text) == counters()
    assert parse_report(text) == parse_report(REPORT) != []


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
    workstation = REPORT.replace("<product_brand>NVIDIA<", "<product_brand>NVIDIA RTX<")
    assert counters(workstation.replace("current_ecc>Enabled", "current_ecc>Disabled")).chips[0].faults == ()
    assert changed("channel_repair_pending", "No", "Yes").faults == ("the repair of a memory channel is pending",)


@pytest.mark.parametrize("name", ["remapped_row_failure", "remapped_row_pending", "channel_repair_pending"])
def test_a_value_that_is_not_known_is_never_healthy(name):
    assert changed(name, "No", "YES").faults == changed(name, "No", "Yes").faults != ()
    for value in ("Pending", "Unknown", "True", "1"):
        assert changed(name, "No", value).faults == ("the tool reports an error in place of a value",)
    assert changed(name, "No", "N/A").faults == changed(name, "No", "[N/A]").faults == ()


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("fabric/health/bandwidth", "Degraded", "the NVLink fabric has a limited capacity"),
        ("fabric/health/bandwidth", "Half", "the tool reports an error in place of a value"),
        ("fabric/health/route_recovery_in_progress", "True", "the NVLink fabric has a limited capacity"),
        ("fabric/health/route_unhealthy", "True", "the NVLink fabric is unhealthy"),
        ("fabric/health/route_unhealthy", "Maybe", "the tool reports an error in place of a value"),
        ("fabric/health/access_timeout_recovery", "True", "the NVLink fabric has a limited capacity"),
        ("retired_pages/pending_blacklist", "Yes", "a bad row of memory is replaced at the next reset"),
        ("retired_pages/pending_retirement", "Yes", "a bad row of memory is replaced at the next reset"),
        ("retired_pages/pending_retirement", "Perhaps", "the tool reports an error in place of a value"),
    ],
)
def test_states_of_older_drivers_and_chips_are_read_too(path, value, fault):
    document = ElementTree.fromstring(REPORT)
    document.find(f"gpu/{path}").text = value
    answer = CommandResult(0, ElementTree.tostring(document, encoding="unicode"), "")
    assert parse_counters([answer], "").chips[0].faults == (fault,)


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
