# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading large files of a real file system."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance import storage_host
from ansible_collections.baremetal.inference.plugins.module_utils.acceptance.storage_host import (
    StorageError,
    largest_file,
    measure_reads,
)

MIB = 1 << 20


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(storage_host, "SMALLEST", 4 * MIB)
    monkeypatch.setattr(storage_host, "RESERVE", 0)


def weights(directory, name, size):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(MIB) * (size // MIB))
    return path


def test_the_largest_file_is_read_to_its_end(tmp_path):
    weights(tmp_path, "org/model/a.safetensors", 5 * MIB)
    largest = weights(tmp_path, "org/model/b.safetensors", 8 * MIB)
    (tmp_path / "link").symlink_to(largest)
    found = measure_reads(str(tmp_path), 30, 0)
    assert (found.file, found.bytes, found.made) == (str(largest), 8 * MIB, False)
    assert found.gb_per_s > 0


def test_the_time_is_limited(tmp_path):
    weights(tmp_path, "a", 80 * MIB)
    found = measure_reads(str(tmp_path), 0, 0)
    assert found.bytes < 80 * MIB


def test_without_a_large_file_one_is_made_and_removed(tmp_path):
    weights(tmp_path, "config.json", MIB)
    assert largest_file(str(tmp_path)) == ""
    found = measure_reads(str(tmp_path), 30, 16 * MIB)
    assert (found.bytes, found.made) == (16 * MIB, True)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_full_file_system_and_one_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_host, "RESERVE", 1 << 60)
    with pytest.raises(StorageError, match=r"has [\d.]+ GB free, but the test needs a file of 0.1 GB"):
        measure_reads(str(tmp_path), 1, 100 * MIB)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match="gone is not a directory on this host; name another one"):
        measure_reads(str(tmp_path / "gone"), 1, 0)
