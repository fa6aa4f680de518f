# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.kernel_records import (
    KernelRecord,
    parse_journal,
    parse_kmsg,
    parse_record,
    trusted_records,
)


def test_a_record_of_the_device():
    assert parse_record("4,1234,5678901,-;NVRM: a; b") == KernelRecord("NVRM: a; b", 1234, 5678901, 0)
    assert parse_record("30,1,2,-,caller=T1;systemd[1]: x").facility == 3
    assert parse_record(" SUBSYSTEM=pci") is None
    assert parse_record("NVRM: a") == KernelRecord("NVRM: a")


@pytest.mark.parametrize("line", [";", "a,b,c,d;x", "1,2;x", f"{'9' * 5000},1,2,-;x", "\u0661,1,2,-;x"])
def test_another_form_is_the_text_of_a_record(line):
    assert parse_record(line).number is None or parse_record(line).number == 1


def test_details_of_records_are_left_out():
    assert [record.text for record in parse_kmsg("4,1,2,-;a\n DEVICE=+pci\n4,2,3,-;b\n")] == ["a", "b"]


def test_the_journal_lists_one_record_a_line_whatever_its_text():
    lines = [
        json.dumps({"MESSAGE": "a\nNVRM: b\u2028c", "SYSLOG_FACILITY": "0"}),
        json.dumps({"MESSAGE": [0xFF, 10, 78], "SYSLOG_FACILITY": "3"}),
        json.dumps({"MESSAGE": None}), json.dumps({}), "[]", "no json", "[" * 100000, json.dumps({"MESSAGE": [999]}),
        json.dumps({"MESSAGE": "d", "SYSLOG_FACILITY": "kern"}),
    ]  # fmt: skip
    assert [(record.text, record.facility) for record in parse_journal("\n".join(lines))] == [
        ("a\\x0aNVRM: b\\x28c", 0), ("\ufffd\\x0aN", 3), ("None", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("stamp", "at"), [("5678901", 5678901), (None, None), ("x", None), ("9" * 6000, None)])
def test_the_journal_has_the_kernels_own_time_of_a_record(stamp, at):
    (record,) = parse_journal(json.dumps({"MESSAGE": "a", "_SOURCE_MONOTONIC_TIMESTAMP": stamp}))
    assert record.at == at


def test_only_the_kernels_own_records_count():
    records = [
        KernelRecord("NVRM: a"), KernelRecord("NVRM: b", facility=1), KernelRecord("x[7]: segfault in NVRM: c"),
        KernelRecord("amdgpu: d"),
    ]  # fmt: skip
    assert [record.text for record in trusted_records(records, ("NVRM", "SXid"))] == ["NVRM: a"]


def test_a_program_cannot_hide_a_record_of_a_driver():
    """A record that repeats the name of a program is left out only where it begins with that name."""
    assert KernelRecord("NVRM: Xid (PCI:0000:5d:00): 79, pid=7, name=a[1]: segfault").is_trusted
    assert KernelRecord("NVRM: Xid (PCI:0000:5d:00): 79, name= invoked oom-killer").is_trusted
