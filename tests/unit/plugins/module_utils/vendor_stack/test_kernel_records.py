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


@pytest.mark.parametrize("text", [
    "{}(812): Attempt to set a LOCK_MAND lock via flock(2). This support has been removed and the request ignored.",
    "{} (812) used greatest stack depth: 12048 bytes left",
    "{} (812): drop_caches: 3",
    "{} (812): /proc/812/oom_adj is deprecated, please use /proc/812/oom_score_adj instead.",
    "mmap: {} (812): VmData 8192 exceed data ulimit 4096. Update limits or use boot option ignore_rlimit_data.",
    "{}: potentially unexpected fatal signal 11.",
    "{}/812: potentially unexpected fatal signal 11.",
    "{}: attempt to access beyond end of device",
    "{} uses obsolete (PF_INET,SOCK_PACKET)",
    "INFO: task {}:812 blocked for more than 120 seconds.",
    "futex_wake_op: {} tries to shift op by -1; fix this program",
    'ptrace attach of "{}"[812] was attempted by "{}"[813]',
    "capability: warning: `{}' uses 32-bit capabilities (legacy support in use)",
    "warning: `{}' uses wireless extensions which will stop working for Wi-Fi 7 hardware; use nl80211",
])  # fmt: skip
@pytest.mark.parametrize("name", ["NVRM: Xid (PCI:", "[drm] GPU reset", "a\\x0aNVRM: Xid", "x"])
def test_a_record_with_the_name_of_a_program_does_not_count(text, name):
    assert not KernelRecord(text.format(name, name)).is_trusted


@pytest.mark.parametrize("text", [
    "[drm] GPU reset(2) succeeded!",
    "[drm] GPU recovery (2) failed",
    "NVRM: Xid (PCI:0000:5d:00): 79, pid=7, GPU has fallen off the bus.",
    "NVRM: GPU 0000:5d:00.0: RmInitAdapter failed! (0x24:0x72:1220)",
    "amdgpu 0000:05:00.0: amdgpu: GPU reset(1) succeeded!",
    "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 22003, Fatal, Link 27 Minion Halt",
    "pcieport 0000:80:01.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal)",
    "Buffer I/O error on dev sda1, logical block 7, async page read",
    "EXT4-fs (sda1): error count since last fsck: 3",
    "[ascend] [devdrv] [812]: event",
])  # fmt: skip
def test_a_record_of_a_driver_counts(text):
    assert KernelRecord(text).is_trusted
