# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import platform

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import records_host
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.records_host import OwnersFile
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.servers import ServersError

RECORDS = {"a--x": {"owner": "rollout:1", "reason": "why", "since": "2026-11-20T10:00:00Z", "state": "drain"}}


@pytest.fixture
def owners(tmp_path):
    return OwnersFile(str(tmp_path / "drained.json"), "gw")


def test_records_are_read_as_they_were_written(owners, tmp_path):
    assert owners.read() == {}
    owners.write(RECORDS)
    assert owners.read() == RECORDS
    assert ((tmp_path / "drained.json").stat().st_mode & 0o777, os.listdir(tmp_path)) == (0o600, ["drained.json"])


def test_a_damaged_file_is_one_warning(owners, tmp_path):
    (tmp_path / "drained.json").write_text("{")
    assert (owners.read(), owners.read()) == ({}, {})
    (warning,) = owners.warnings
    assert warning.startswith(f"gw: {tmp_path}/drained.json: is not JSON") and "counts as drained by hand" in warning


def test_a_missing_directory_is_named(tmp_path):
    owners = OwnersFile(str(tmp_path / "missing/drained.json"), "gw")
    with pytest.raises(ServersError, match=r"gw: .*/drained\.json: cannot be written: No such file or directory"):
        owners.write(RECORDS)
    with pytest.raises(ServersError, match=r"gw: .*/drained\.json\.lock: cannot be locked: No such"), owners.lock():
        pass


def test_the_holder_of_the_lock_is_named(owners, tmp_path, monkeypatch):
    monkeypatch.setattr(records_host, "LOCK_SECONDS", 0.1)
    process = rf"process {os.getpid()} of {platform.node()} \(uid {os.geteuid()}\)"
    holder = rf"another run has changed servers here .*is locked by {process}\)"
    with owners.lock(), pytest.raises(ServersError, match=holder), owners.lock():
        pass
    with owners.lock():
        pass
