# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import tempfile

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.rocm.tools_host import (
    RecordsAnswer,
    read_records,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import (
    NOT_INSTALLED,
    CommandResult,
)

ROW = "2000/06/27 10:45:13  1       FATAL                fatal-1.cper      30\n"
BUS = '[{"gpu": 1, "bus": {"bdf": "0000:15:00.0"}}]'


def test_each_severity_has_a_directory_of_its_own_that_goes_away():
    directories = {}

    def run(argv):
        if argv[1] == "static":
            return CommandResult(0, BUS)
        assert argv[:4] == ("amd-smi", "ras", "--cper", "--severity") and os.path.isdir(argv[6])
        directories[argv[4]] = argv[6]
        return CommandResult(0, ROW if argv[4] == "fatal" else "")

    answer = read_records(run)
    assert [(record.chip, record.codes) for record in answer.records] == [("0000:15:00.0", ("30",))]
    assert list(directories) == ["fatal", "nonfatal-uncorrected"]
    assert not any(os.path.exists(directory) for directory in directories.values())


def test_without_records_the_addresses_are_not_asked_for():
    asked = []
    assert read_records(lambda argv: asked.append(argv[1]) or CommandResult(0, "")) == RecordsAnswer()
    assert asked == ["ras", "ras"]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (CommandResult(2, "", "amd-smi: error: argument command: invalid choice: 'ras'"), "invalid choice: 'ras'"),
        (NOT_INSTALLED, "amd-smi is not installed"),
    ],
)
def test_a_tool_without_records_is_a_problem_and_no_error(result, problem):
    answer = read_records(lambda _argv: result)
    assert answer.records == () and problem in answer.problem


def test_a_full_disk_is_a_problem_and_no_error(monkeypatch):
    def full(*_words, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert "No space left on device" in read_records(lambda _argv: CommandResult(0, "")).problem
