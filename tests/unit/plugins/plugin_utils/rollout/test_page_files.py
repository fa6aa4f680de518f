# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import stat

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.journal import JOURNAL
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.page_files import (
    ReportFileError,
    page_parts,
    read_journal,
    write_changed,
)


def test_a_journal_is_named_by_its_file_or_its_directory(tmp_path):
    (tmp_path / JOURNAL).write_text('{"event": "begun", "at": "2026-01-01T00:00:00Z"}\n')
    assert read_journal(str(tmp_path)) == read_journal(str(tmp_path / JOURNAL)) != []


def test_a_journal_that_is_not_there_is_named_with_what_was_expected(tmp_path):
    with pytest.raises(
        ReportFileError, match=f"journal: {tmp_path}/{JOURNAL} is not there; expected the {JOURNAL} of a"
    ):
        read_journal(str(tmp_path))
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(ReportFileError, match="cannot be read: not a regular file"):
        read_journal(str(tmp_path))


def test_a_report_is_private_and_written_once(tmp_path):
    path = tmp_path / "report.html"
    assert write_changed("report", str(path), "x", check_mode=True) and not path.exists()
    assert write_changed("report", str(path), "x", check_mode=False)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert not write_changed("report", str(path), "x", check_mode=False)
    assert write_changed("report", str(path), "y", check_mode=False)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("y", 0o644)


def test_a_report_in_the_place_of_a_directory_is_refused(tmp_path):
    with pytest.raises(ReportFileError, match=f"report: {tmp_path} is in the way"):
        write_changed("report", str(tmp_path), "x", check_mode=False)


def test_the_page_has_all_its_parts():
    assert {"frame", "html", "css", "js"} <= set(page_parts()) and all(page_parts().values())
