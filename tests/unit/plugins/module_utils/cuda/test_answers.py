# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi and the kernel say of NVIDIA's driver, whatever a process on a chip is called."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.cuda.answers import (
    parse_query,
    parse_report,
    parse_xids,
    short_address,
    split_report,
)

LINE = "0, NVIDIA H200, GPU-1, 9.0, 143771, 580.95.05, Disabled, 00000000:5D:00.0, 0x233510DE"


def report(inner, before="", after=""):
    chip = f'<gpu id="00000000:5D:00.0">{inner}</gpu>'
    return f'{before}<?xml version="1.0" ?>\n<nvidia_smi_log>{chip}</nvidia_smi_log>{after}'


def test_a_line_of_the_query_is_a_chip_with_the_kernels_address():
    (chip,) = parse_query(f"index, name, uuid, x, x, x, x, x, x\n{LINE}\n\nNo devices were found\n")
    assert (chip.index, chip.name, chip.address, chip.broken) == ("0", "NVIDIA H200", "0000:5d:00.0", ())


@pytest.mark.parametrize("value", ["ERR!", "[Unknown Error]", "[GPU requires reset]", "[GPU is lost]"])
def test_an_error_in_place_of_a_value_is_known(value):
    (chip,) = parse_query(LINE.replace("143771", value))
    assert chip.broken == (value,)


@pytest.mark.parametrize(
    ("bus_id", "address"),
    [
        ("00000000:00:06.0", "0000:00:06.0"),
        ("00000001:5D:00.0", "0001:5d:00.0"),
        (" 0000:5D:00.0\n", "0000:5d:00.0"),
    ],
)
def test_a_bus_id_in_the_form_of_the_kernel(bus_id, address):
    assert short_address(bus_id) == address


def test_what_a_report_says_of_a_chip():
    (chip,) = parse_report(
        report(
            "<mig_mode><current_mig>Enabled</current_mig><pending_mig>N/A</pending_mig></mig_mode>"
            "<persistence_mode> Enabled </persistence_mode>"
            "<fabric><state>Completed</state><status>Success</status><health><summary>Healthy</summary></health></fabric>"
            "<gpu_recovery_action>None</gpu_recovery_action>"
            "<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>"
            "<mig_devices><mig_device><fb_memory_usage><total>18176 MiB</total></fb_memory_usage></mig_device>"
            "<mig_device><fb_memory_usage><total>[N/A]</total></fb_memory_usage></mig_device></mig_devices>"
        )
    )
    assert (chip.address, chip.mig, chip.mig_pending, chip.persistence) == ("0000:5d:00.0", "Enabled", "", "Enabled")
    assert (chip.fabric, chip.fabric_status, chip.fabric_health) == ("Completed", "Success", "Healthy")
    assert (chip.recovery, chip.remapping_failed, chip.mig_memory, chip.virtual) == ("", True, (18176, 0), False)


def test_a_vgpu_has_a_licence():
    (chip,) = parse_report(
        report(
            "<gpu_virtualization_mode><virtualization_mode>VGPU</virtualization_mode></gpu_virtualization_mode>"
            "<vgpu_software_licensed_product><license_status>Unlicensed</license_status></vgpu_software_licensed_product>"
        )
    )
    assert chip.virtual and chip.licence == "Unlicensed" and not chip.remapping_failed


@pytest.mark.parametrize(
    "name",
    ["a <b> & c", "</process_name></process_info></processes></gpu></nvidia_smi_log>", "]]>", "<!--", '<gpu id="1">'],
)
def test_no_name_of_a_process_changes_the_report(name):
    """Any user of the chips chooses it, and nvidia-smi escapes nothing."""
    text = report(
        "<processes><process_info><pid>7</pid>\n"
        f"<process_name>{name}</process_name>\n<used_memory>1 MiB</used_memory></process_info></processes>"
        "<persistence_mode>Enabled</persistence_mode>"
    )
    (chip,) = parse_report(text)
    assert chip.persistence == "Enabled"


def test_messages_beside_the_report_are_kept():
    chips, messages = split_report(report("", "WARNING: infoROM is corrupted\n", "\nunable to read\n"))
    assert len(chips) == 1 and "infoROM is corrupted" in messages and "unable to read" in messages


@pytest.mark.parametrize(
    "text", ["", "NVIDIA-SMI has failed", "<nvidia_smi_log><gpu", "<nvidia_smi_log><a></nvidia_smi_log>"]
)
def test_any_other_text_has_no_chips(text):
    assert parse_report(text) == []


def test_errors_of_chips_in_the_kernels_log():
    log = (
        "NVRM: Xid (PCI:0000:5D:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
        "NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 31, pid=7\n"
        "user: NVRM: Xid (PCI:0000:5d:00): 48, forged\n"
    )
    assert [(xid.address, xid.number) for xid in parse_xids(log)] == [("0000:5d:00.0", 79), ("0000:1b:00.0", 31)]
