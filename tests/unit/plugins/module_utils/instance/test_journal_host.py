# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import journal_host
from ansible_collections.baremetal.inference.plugins.module_utils.instance.journal_host import read_journal


@pytest.fixture
def journalctl(tmp_path, monkeypatch):
    """A stand-in that runs a script."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(script):
        (tmp_path / "journalctl").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "journalctl").chmod(0o755)

    return write


def test_its_lines_and_no_more_than_may_be_read(journalctl):
    journalctl('echo "$@"')
    assert read_journal(["--unit=x"], 1000) == ["--no-pager --quiet --unit=x"]
    journalctl("exec yes")
    assert read_journal([], 4) == ["y", "y"]


def test_one_without_matching_lines_is_empty(journalctl):
    # With --grep, journalctl ends so.
    journalctl("exit 1")
    assert read_journal([], 1000) == []


def test_one_that_cannot_be_read_is_an_error(journalctl):
    journalctl("echo Compiled without pattern matching support >&2; exit 1")
    with pytest.raises(OSError, match="journalctl: Compiled without pattern matching support"):
        read_journal([], 1000)


def test_one_that_hangs_is_ended(journalctl, monkeypatch):
    monkeypatch.setattr(journal_host, "_TIMEOUT", 0.2)
    journalctl("echo a line; exec sleep 600")
    assert read_journal([], 1000) == ["a line"]
