# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import openings
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.openings import OpeningsWatch


@pytest.fixture
def path(tmp_path):
    (tmp_path / "x").write_bytes(b"1")
    return tmp_path / "x"


def test_the_first_opening_and_no_writing_of_ours_is_noticed(path):
    with open(path, "r+b", buffering=0) as ours:
        watch = OpeningsWatch(str(path))
        ours.write(b"2")
        os.fsync(ours.fileno())
        os.utime(ours.fileno())
        assert not watch.was_opened()
        path.read_bytes()
        assert watch.was_opened()
        watch.close()


def test_where_the_kernel_cannot_say_anything_may_have_happened(path, monkeypatch):
    watch = OpeningsWatch(str(path / "none"))
    assert watch.was_opened()
    monkeypatch.setattr(openings._LIBC, "inotify_init1", lambda _flags: -1)
    watch = OpeningsWatch(str(path))
    assert watch.was_opened()
    watch.close()


def test_a_watch_leaves_nothing_behind(path):
    before = os.listdir("/proc/self/fd")
    for _turn in range(300):
        watch = OpeningsWatch(str(path))
        assert not watch.was_opened()
        watch.close()
        watch.close()
    # Other threads of this process may have opened or closed some of theirs meanwhile.
    assert len(os.listdir("/proc/self/fd")) < len(before) + 100
