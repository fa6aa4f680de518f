# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.scrub import Pinned, Report, parse_report

FILE = Pinned("/srv/models/example/tiny/aaaa", "model.safetensors", 7, "expected")


def test_a_damaged_file_is_listed_until_it_is_intact():
    report = Report()
    line = report.add_damaged(FILE, "other", True, 5)
    assert line == f"{FILE.path}: damaged: found other, expected sha256 expected"
    assert report.damaged[FILE.path]["when"] == 5
    report.add_intact(FILE, 6)
    assert (report.damaged, report.checked) == ({}, {FILE.path: 6})


def test_the_oldest_check_comes_first_and_an_unknown_file_before_it():
    assert Report(checked={"a": 9, "b": 5}).order(["a", "b", "c"]) == ["c", "b", "a"]


def test_files_of_no_stamp_are_forgotten_unless_they_wait_for_a_download():
    report = Report({"a": 1, "b": 1}, {"c": {}, "d": {}}, {"e": "why"})
    report.keep_present({"a": FILE}, ["c"])
    assert (report.checked, report.damaged, report.skipped) == ({"a": 1}, {"c": {}}, {})


def test_a_report_is_read_as_it_was_written():
    report = Report()
    report.add_damaged(FILE, "other", False, 5)
    report.add_intact(Pinned("/srv", "x", 1, "y"), 7)
    assert parse_report(report.document()) == report


@pytest.mark.parametrize(
    "document",
    [{}, {"version": 2, "checked": {}, "damaged": {}}, {"version": 1, "checked": [], "damaged": {}}, {"version": 1}],
)
def test_an_invalid_report_is_empty(document):
    assert parse_report(document) == Report()


def test_invalid_entries_of_a_report_are_dropped():
    found = parse_report({"version": 1, "checked": {"a": "x"}, "damaged": {"b": [], "c": {"found": "no file"}}})
    assert found == Report()


@pytest.mark.parametrize(("finished", "begin"), [(None, "stopped after"), (7, "read")])
def test_the_summary_names_the_figures(finished, begin):
    report = Report(run={"finished": finished, "files": 3, "bytes": 2_500_000_000, "seconds": 4.0})
    assert report.summary() == f"{begin} 3 files, 2.5 GB in 4.0 s; damaged: 0, skipped: 0"
