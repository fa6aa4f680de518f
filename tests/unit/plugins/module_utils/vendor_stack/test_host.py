# SPDX-License-Identifier: GPL-3.0-or-later
"""The vendor's tool is asked with a deadline, also where the kernel does not let it end."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack import host
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.answers import TIMED_OUT, CommandResult


def test_an_answer_and_what_is_none(tmp_path):
    assert host.run_command(["sh", "-c", "echo a; echo b >&2; exit 3"]) == CommandResult(3, "a\n", "b\n")
    assert host.run_command(["none-of-this-name"]).rc != 0
    (tmp_path / "tool").write_text("no program")
    (tmp_path / "tool").chmod(0o755)
    assert host.run_command([str(tmp_path / "tool")]).rc == 126


@pytest.mark.parametrize("unkillable", [False, True])
def test_a_tool_that_hangs_with_its_chip_is_left_behind(monkeypatch, unkillable):
    monkeypatch.setattr(host, "PATIENCE", 0.2)
    monkeypatch.setattr(host, "LAST_PATIENCE", 0.2)
    left = []
    if unkillable:
        # As in the kernel's state D, in which a process does not end before the driver lets it.
        monkeypatch.setattr(subprocess.Popen, "kill", lambda process: left.append(process.pid))
    assert host.run_command(["sleep", "60"]) == CommandResult(TIMED_OUT)
    # Nor is it started again before it has ended.
    assert host.run_command(["sleep", "60"] if unkillable else ["sleep", "0"]).rc == (TIMED_OUT if unkillable else 0)
    assert len(left) == unkillable
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert host.run_command(["sleep", "0"]).rc == 0
