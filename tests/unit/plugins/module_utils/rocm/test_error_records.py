# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of `amd-smi ras --cper`, as AMD SMI's documentation and its issues show them."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.error_records import (
    ErrorRecord,
    SeenRecords,
    parse_records,
    standing_errors,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import FaultBook
from ansible_collections.baremetal.inference.plugins.plugin_utils.catalog.faults import faults_of_host

HEADER = "timestamp            gpu_id  severity             file_name         list of afids\n"
TABLE = (
    HEADER + "2000/06/27 10:45:13  0       FATAL                fatal-1.cper      30 31 32 33\n"
    "2000/06/27 10:45:14  1       NONFATAL-UNCORRECTED uncorrected-2.cper 22\n"
)
ADDRESSES = {"0": "0000:05:00.0", "1": "0000:15:00.0"}


def test_a_table_becomes_records():
    assert parse_records(TABLE, ADDRESSES) == [
        ErrorRecord("0000:05:00.0", 962102713.0, "FATAL", ("30", "31", "32", "33")),
        ErrorRecord("0000:15:00.0", 962102714.0, "NONFATAL-UNCORRECTED", ("22",)),
    ]


@pytest.mark.parametrize(
    "rest", ["", "-", "decode failed", "Error fetching AFIDs", "18446744073709551615 18446744073709551615"]
)
def test_a_record_that_amd_smi_cannot_decode_has_no_identifier(rest):
    (record,) = parse_records(
        f"2000/06/27 10:45:13  -       FATAL                fatal-1.cper      {rest}\n", ADDRESSES
    )
    assert (record.chip, record.codes) == ("", ("none",))


@pytest.mark.parametrize("text", ["", HEADER, "No GPU supports CPER\n", "2000/06/27 10:45:13  0       FATAL\n"])
def test_other_texts_have_no_records(text):
    assert parse_records(text, ADDRESSES) == []


def test_a_date_that_does_not_exist_is_the_epoch():
    (record,) = parse_records("2000/13/27 10:45:13  0       FATAL                fatal-1.cper      30\n", ADDRESSES)
    assert record.at == 0.0


def record_at(at):
    return ErrorRecord("0000:05:00.0", at, "FATAL", ("30",))


def test_each_record_is_new_once_though_every_answer_has_all():
    seen = SeenRecords(0.0)
    assert seen.new([record_at(5.0)]) == [record_at(5.0)]
    assert seen.new([record_at(5.0)]) == []
    # The same second and the same error, but a second record.
    assert seen.new([record_at(5.0), record_at(5.0), record_at(9.0)]) == [record_at(5.0), record_at(9.0)]
    # The driver was loaded again and keeps nothing; its clock may have been set back.
    assert seen.new([]) == []
    assert seen.new([record_at(4.0)]) == [record_at(4.0)]
    assert seen.newest == 9.0


def test_after_a_new_start_only_later_records_are_new():
    seen = SeenRecords(7.0)
    assert seen.new([record_at(0.0), record_at(7.0), record_at(8.0)]) == [record_at(0.0), record_at(8.0)]


@pytest.mark.parametrize(
    ("code", "at", "stands"),
    [
        # The driver has reset the chip 100 seconds after the epoch, and a record has whole seconds.
        ("30", 98.0, False), ("30", 99.5, True), ("30", 101.0, True), ("14", 98.0, False),
        # Only a person ends it, or its time is unknown.
        ("19", 98.0, True), ("30", 0.0, True),
    ],
)  # fmt: skip
def test_a_reset_ends_the_older_errors_that_a_boot_would_end(code, at, stands):
    book = FaultBook.from_document(faults_of_host("rocm"))
    record = ErrorRecord("0000:05:00.0", at, "FATAL", (code,))
    found = standing_errors(book, [record, record], {"0000:05:00.0": 100.0})
    assert [event.fault.name for event in found] == ([f"afid {code}"] if stands else [])
    assert len(standing_errors(book, [record], {"0000:15:00.0": 100.0})) == 1
