# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gc
import json
import os
import stat

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.cache import (
    read_discovery,
    write_discovery,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.discovery.observations import DiscoveryError, Entry

ENTRIES = {
    "gpu-1": Entry("2026-11-21T12:00:00Z", {"functions": []}),
    "gpu-2": Entry("2026-11-21T12:00:00Z", {"functions": []}, "2026-11-21T13:00:00Z", "timed out"),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "cache.json"


def test_what_was_written_is_read(path):
    write_discovery(str(path), ENTRIES)
    assert read_discovery(str(path)) == ENTRIES
    assert gc.isenabled()


def test_the_file_is_json_with_a_line_for_each_host(path):
    write_discovery(str(path), ENTRIES)
    assert list(json.loads(path.read_text())["hosts"]) == ["gpu-1", "gpu-2"]
    assert [line.split(":")[0] for line in path.read_text().splitlines()[1:-1]] == ['"gpu-1"', '"gpu-2"']


def test_without_hosts_it_is_json_too(path):
    write_discovery(str(path), {})
    assert read_discovery(str(path)) == {}


def test_where_no_file_is_there_are_no_answers(path):
    assert read_discovery(str(path)) == {}


def test_only_the_owner_may_read_and_nothing_is_left_beside(path):
    write_discovery(str(path), ENTRIES)
    path.chmod(0o644)
    write_discovery(str(path), ENTRIES)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["cache.json"]


def test_a_link_stays_a_link(path, tmp_path):
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere.json")
    write_discovery(str(path), ENTRIES)
    assert path.is_symlink() and read_discovery(str(tmp_path / "elsewhere.json")) == ENTRIES


def test_a_link_of_another_user_chooses_no_file(path, tmp_path, monkeypatch):
    path.parent.mkdir()
    (tmp_path / "precious").write_text("{}")
    path.symlink_to(tmp_path / "precious")
    lstat = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: os.stat_result((*(found := lstat(path))[:4], 65534, *found[5:])))
    with pytest.raises(DiscoveryError, match=r"cannot be written: .*a link of another user"):
        write_discovery(str(path), ENTRIES)
    assert (tmp_path / "precious").read_text() == "{}"


def test_a_file_that_cannot_be_replaced_stays_as_it_was(path, monkeypatch):
    write_discovery(str(path), ENTRIES)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiscoveryError, match=f"discovery cache {path}: cannot be written: No space left on device"):
        write_discovery(str(path), {})
    assert read_discovery(str(path)) == ENTRIES
    assert [entry.name for entry in path.parent.iterdir()] == ["cache.json"]


def test_a_file_that_is_cut_anywhere_is_an_error_that_names_it(path):
    write_discovery(str(path), ENTRIES)
    text = path.read_text().rstrip()
    for end in range(len(text)):
        path.write_text(text[:end])
        with pytest.raises(DiscoveryError, match=f"discovery cache {path}: is damaged or cut short"):
            read_discovery(str(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"schema": 7, "hosts": {}}', "is of schema 7, expected 1"),
        (b"[]", "holds no answers of hosts"),
        (b"\xff\xfe", "cannot be read: it is not text"),
        (b"[" * 100000, "is damaged or cut short"),
    ],
)
def test_another_file_is_an_error_that_names_it(path, content, message):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(DiscoveryError, match=f"discovery cache {path}: {message}"):
        read_discovery(str(path))


def test_a_directory_is_an_error(tmp_path):
    with pytest.raises(DiscoveryError, match=f"discovery cache {tmp_path}: cannot be read: Is a directory"):
        read_discovery(str(tmp_path))
    with pytest.raises(DiscoveryError, match=f"discovery cache {tmp_path}: cannot be written: "):
        write_discovery(str(tmp_path), ENTRIES)
