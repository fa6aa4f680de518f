# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.space_host import describe_full


@pytest.mark.parametrize(("free", "inodes", "expected"), [
    (10_000_000_000, 5000, ""),
    (10_000_000_000, 0, "0 free inodes, expected 1000 or more"),
    (12_000_000, 5000, "12 MB free, expected 500 MB or more"),
    (0, 0, "0 MB free, expected 500 MB or more"),
])  # fmt: skip
def test_a_full_cache_directory_is_reported(monkeypatch, tmp_path, free, inodes, expected):
    found = SimpleNamespace(f_bavail=free // 1000, f_frsize=1000, f_files=9000, f_favail=inodes)
    asked = []
    monkeypatch.setattr(os, "statvfs", lambda path: asked.append(path) or found)
    text = describe_full(str(tmp_path / "cache/vllm"))
    assert asked == [str(tmp_path)]
    assert (expected in text and "make room" in text) if expected else not text


def test_a_file_system_without_a_table_of_inodes_has_room(monkeypatch, tmp_path):
    found = SimpleNamespace(f_bavail=10_000_000, f_frsize=1000, f_files=0, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _path: found)
    assert not describe_full(str(tmp_path))
