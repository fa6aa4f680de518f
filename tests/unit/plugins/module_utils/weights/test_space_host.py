# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether weights have space: before the first byte, and with what an earlier run left."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights import space_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import ModelState
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import (
    ManifestFile,
    WeightsError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.space_host import check_place, check_room

BLOCK = 4096


def state_of(directory, missing=(), repository="example/tiny"):
    files = tuple(ManifestFile(name, size, "0" * 64) for name, size in dict(missing).items())
    manifest = SimpleNamespace(repository=repository, files=files)
    return ModelState(manifest, str(directory), (), files, stamp_current=False)


@pytest.fixture
def disk(monkeypatch):
    """The figures of every file system."""
    found = SimpleNamespace(f_flag=0, f_frsize=BLOCK, f_bavail=0, f_files=1000, f_favail=1000)
    monkeypatch.setattr(space_host.os, "statvfs", lambda _path: found)
    return found


def test_files_need_whole_blocks(tmp_path, disk):
    state = state_of(tmp_path / "models/tiny/a", {"a": 1, "b": BLOCK + 1})
    disk.f_bavail = 3
    check_room([state], {})
    disk.f_bavail = 2
    with pytest.raises(WeightsError, match=r"12288 bytes .* are needed for example/tiny, 8192 bytes .* are free"):
        check_room([state], {})


def test_models_of_one_file_system_share_its_space(tmp_path, disk):
    states = [state_of(tmp_path / name, {"a": BLOCK}, name) for name in ("x", "y")]
    disk.f_bavail = 2
    check_room(states, {})
    disk.f_bavail = 1
    for state in states:
        check_room([state], {})
    with pytest.raises(WeightsError, match="are needed for x, y"):
        check_room(states, {})


def test_what_is_linked_or_was_already_fetched_needs_no_space(tmp_path, disk):
    state = state_of(tmp_path / "a", {"linked": 9 * BLOCK, "partial": 3 * BLOCK})
    check = {state.directory: ["linked"]}
    disk.f_bavail = 1
    with pytest.raises(WeightsError, match="12288 bytes"):
        check_room([state], check)
    os.mkdir(state.partial)
    with open(f"{state.partial}/partial", "wb") as file:
        file.write(b"x" * 2 * BLOCK)
        os.fsync(file.fileno())
    check_room([state], check)
    # A file that the published directory has too takes nothing more.
    os.link(f"{state.partial}/partial", tmp_path / "published")
    with pytest.raises(WeightsError, match="12288 bytes"):
        check_room([state], check)


def test_inodes_count_where_the_file_system_has_a_table_of_them(tmp_path, disk):
    state = state_of(tmp_path / "a", {f"{n}": 0 for n in range(100)})
    disk.f_favail = 100
    with pytest.raises(WeightsError, match=r"inodes are needed for example/tiny, 100 are free \(df -i\)"):
        check_room([state], {})
    disk.f_files = 0
    check_room([state], {})


def test_a_file_system_that_nobody_can_write_is_named(tmp_path, disk):
    disk.f_flag = os.ST_RDONLY
    with pytest.raises(WeightsError, match="it is mounted read-only; mount it for writing"):
        check_room([state_of(tmp_path / "a")], {})
    disk.f_flag = 0
    (tmp_path / "models").touch()
    with pytest.raises(WeightsError, match=r"models: found a file, expected a directory"):
        check_room([state_of(tmp_path / "models/tiny")], {})


@pytest.mark.parametrize("name", ["rev", ".rev.partial"])
def test_a_model_is_published_by_a_rename_so_its_place_is_a_plain_directory(tmp_path, monkeypatch, name):
    state = state_of(tmp_path / "rev")
    check_place(state)
    (tmp_path / name).mkdir()
    check_place(state)
    monkeypatch.setattr(space_host.os.path, "ismount", lambda path: path == str(tmp_path / name))
    with pytest.raises(WeightsError, match=f"{name}: found a mount point, expected a plain directory"):
        check_place(state)
    (tmp_path / name).rmdir()
    (tmp_path / name).symlink_to(tmp_path)
    with pytest.raises(WeightsError, match=f"{name}: found a symbolic link, expected a plain directory; remove"):
        check_place(state)
