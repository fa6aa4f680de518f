# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.daemon_host import (
    read_text,
    write_text,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import RuntimePlanError


def test_a_missing_file_is_empty_and_a_new_one_is_for_everybody(tmp_path):
    path = tmp_path / "daemon.json"
    assert read_text(str(path)) == ""
    write_text(str(path), "{}")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("{}", 0o644)


def test_a_file_that_protects_a_password_keeps_its_mode(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text("{}")
    path.chmod(0o600)
    write_text(str(path), '{"debug": true}')
    assert (read_text(str(path)), path.stat().st_mode & 0o777) == ('{"debug": true}', 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["daemon.json"]


def test_a_file_that_is_no_text_is_not_taken_for_an_empty_one(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_bytes(b'{"log-driver": "\xff"}')
    with pytest.raises(
        RuntimePlanError, match=r"daemon\.json is not valid JSON: byte 16 is not UTF-8; repair or remove"
    ):
        read_text(str(path))
    with pytest.raises(RuntimePlanError, match="cannot be read: Is a directory; repair or remove it"):
        read_text(str(tmp_path))
