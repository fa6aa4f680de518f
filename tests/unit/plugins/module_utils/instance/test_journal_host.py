# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import journal_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.journal_host import read_journal


def test_its_lines_and_no_more_than_may_be_read(program):
    program("journalctl", 'echo "$@"')
    assert read_journal(["--unit=x"], 1000) == ["--no-pager --quiet --unit=x"]
    program("journalctl", "exec yes")
    assert read_journal([], 4) == ["y", "y"]


def test_one_without_matching_lines_is_empty(program):
    # With --grep, journalctl ends so.
    program("journalctl", "exit 1")
    assert read_journal([], 1000) == []


def test_one_that_cannot_be_read_is_an_error(program):
    program("journalctl", "echo Compiled without pattern matching support >&2; exit 1")
    with pytest.raises(OSError, match="journalctl: Compiled without pattern matching support"):
        read_journal([], 1000)


def test_one_that_hangs_is_ended(program, monkeypatch):
    monkeypatch.setattr(journal_host, "_TIMEOUT", 0.2)
    program("journalctl", "echo a line; exec sleep 600")
    assert read_journal([], 1000) == ["a line"]
