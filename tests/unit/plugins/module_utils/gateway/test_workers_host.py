# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections of workers that were replaced, out of a /proc made for the test."""

from __future__ import annotations

import os
import sys

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.workers_host import (
    remote_endpoints,
    replaced_sessions,
)

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(remote, inode, state="01", local="0100007F:A000"):
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  999  0 {inode} 1 0 20 4 30 10 -1\n"


def process(proc, pid, parent, inodes=(), command="haproxy"):
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(f"{pid} ({command}) S {parent} {parent} 0 0")
    for number, inode in enumerate(inodes):
        os.symlink(f"socket:[{inode}]", proc / str(pid) / "fd" / str(number))
    os.symlink("/dev/null", proc / str(pid) / "fd" / "99")


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "net").mkdir()
    process(tmp_path, 100, 1, [1])
    process(tmp_path, 120, 100, [50])
    (tmp_path / "120/net").mkdir()
    # 10.0.0.5:8000 and fd00::5, as a little-endian machine prints them.
    (tmp_path / "120/net/tcp").write_text(
        HEAD + row("0500000A:1F40", 50) + row("0500000A:1F40", 60) + row("0500000A:1F40", 61) + row("0500000A:1F41", 62)
        + row("0500000A:1F40", 63, "06") + row("0500000A:1F40", 70)
    )  # fmt: skip
    (tmp_path / "120/net/tcp6").write_text(
        HEAD + row("000000FD000000000000000005000000:1F40", 64, local="0" * 32 + ":1")
    )
    return tmp_path


needs_little = pytest.mark.skipif(sys.byteorder != "little", reason="the table is that of a little-endian machine")


@needs_little
def test_connections_of_workers_that_were_replaced(proc):
    process(proc, 110, 100, [60, 61, 63, 64])
    process(proc, 111, 100, [62])
    # Another program of the same parent, and the worker of another HAProxy.
    process(proc, 112, 100, [70], "python3")
    process(proc, 130, 1, [70])
    assert replaced_sessions(120, str(proc)) == {
        ("10.0.0.5", 8000): 2,
        ("10.0.0.5", 8001): 1,
        ("fd00::5", 8000): 1,
    }


def test_none_were_replaced(proc):
    assert replaced_sessions(120, str(proc)) == {}


def test_a_worker_without_a_master_has_none(proc):
    process(proc, 130, 1, [70])
    process(proc, 131, 1, [60])
    assert replaced_sessions(131, str(proc)) == {}


def test_a_process_that_has_ended_has_none(proc):
    assert replaced_sessions(9999, str(proc)) == {}


@needs_little
def test_remote_endpoints_of_either_family():
    table = HEAD + row("0100007F:1F40", 5) + row("0100007F:1F40", 6, "0A") + "cut off\n"
    assert remote_endpoints(table) == {"5": ("127.0.0.1", 8000)}
    table = HEAD + row("000000FD000000000000000005000000:1F40", 5, local="0" * 32 + ":1")
    assert remote_endpoints(table) == {"5": ("fd00::5", 8000)}
