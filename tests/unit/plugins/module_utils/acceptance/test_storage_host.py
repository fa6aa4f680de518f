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

from tests.fakes.weights_store import open_to_others

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


def test_a_file_with_holes_is_not_read(tmp_path):
    """Zeros that no disk holds gave 8 GB/s."""
    whole = weights(tmp_path, "whole", 5 * MIB)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(500 * MIB)
    assert largest_file(str(tmp_path)) == str(whole)


@pytest.mark.parametrize("place", ["org/model/large", "org/model", "org"])
def test_what_another_user_could_exchange_is_not_read(tmp_path, place):
    weights(tmp_path, "org/model/large", 8 * MIB)
    own = weights(tmp_path, "own", 5 * MIB)
    open_to_others(tmp_path / place)
    assert largest_file(str(tmp_path)) == str(own)


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_what_has_become_no_file_is_neither_followed_nor_waited_for(tmp_path, monkeypatch, kind):
    path = weights(tmp_path, "file", 5 * MIB)
    path.rename(tmp_path / "other")
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("other")
    monkeypatch.setattr(storage_host, "largest_file", lambda _directory: str(path))
    with pytest.raises(StorageError, match=f"^{path} cannot be read: "):
        measure_reads(str(tmp_path), 1, 0)


def test_a_directory_that_is_a_link_is_read(tmp_path):
    weights(tmp_path, "disk/file", 5 * MIB)
    (tmp_path / "models").symlink_to("disk")
    assert measure_reads(str(tmp_path / "models"), 30, 0).bytes == 5 * MIB
