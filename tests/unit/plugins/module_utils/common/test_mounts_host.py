# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import mounts_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.mounts_host import (
    MountedError,
    check_unmounted,
    mount_within,
    read_mounts,
)

from tests.fakes.mounts import bound

ROOT = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path / "proc"


def test_mounts_have_a_place_and_a_kind(proc):
    (proc / "self/mountinfo").write_text(ROOT + "2 1 0:5 / /srv/a\\040b rw shared:1 - nfs4 host:/export rw\n")
    assert read_mounts(str(proc)) == [("/", "ext4"), ("/srv/a b", "nfs4")]


@pytest.mark.parametrize(("mount", "found"), [("", True), ("/a\u2028/b", True), ("-other", False)])
def test_a_mount_at_a_place_or_below_it_is_found(proc, tmp_path, mount, found):
    (proc / "self/mountinfo").write_text(f"{ROOT}2 1 8:1 /x {tmp_path}/top{mount} rw - ext4 /dev/sda1 rw\n")
    assert mount_within(str(tmp_path / "top/c"), str(proc)) == ""
    assert mount_within(str(tmp_path / "top"), str(proc)) == (f"{tmp_path}/top{mount}" if found else "")


def test_a_list_that_cannot_be_read_whole_is_none(proc, monkeypatch):
    with pytest.raises(FileNotFoundError):
        read_mounts(str(proc))
    (proc / "self/mountinfo").touch()
    with pytest.raises(OSError, match="the list of mounts cannot be read"):
        read_mounts(str(proc))
    (proc / "self/mountinfo").write_text(ROOT * 9)
    monkeypatch.setattr(mounts_host, "_PIECE", 10)
    monkeypatch.setattr(mounts_host, "MOST_TEXT", 100)
    with pytest.raises(OSError, match="the list of mounts cannot be read"):
        mount_within("/srv", str(proc))


def test_a_bind_mount_is_found_through_a_link(tmp_path):
    with bound(tmp_path / "shared", tmp_path / "top/a/b"):
        (tmp_path / "link").symlink_to("top")
        with pytest.raises(MountedError, match=f"because {tmp_path}/top/a/b is mounted there") as error:
            check_unmounted(str(tmp_path / "link/a"))
        assert error.value.mount == str(tmp_path / "top/a/b")
        check_unmounted(str(tmp_path / "shared"))
    check_unmounted(str(tmp_path / "link/a"))
