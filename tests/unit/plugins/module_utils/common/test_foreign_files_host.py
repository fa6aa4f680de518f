# SPDX-License-Identifier: GPL-3.0-or-later
"""A directory of another user: whatever lies there, root follows no link, waits for nothing and reads no end."""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_files_host import (
    MAX_BYTES,
    ForeignDirectory,
)


@pytest.fixture
def place(tmp_path):
    (tmp_path / "chat").mkdir()
    return tmp_path / "chat"


@pytest.fixture
def directory(place):
    return ForeignDirectory(str(place))


def link(path):
    path.symlink_to(path.parent.parent / "of-root")


def hanging_link(path):
    path.symlink_to(path.parent.parent / "nologin")


def huge(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)


def endless(path):
    path.symlink_to("/dev/zero")


ODD = {
    "link": link, "link to nothing": hanging_link, "FIFO": os.mkfifo, "directory": os.mkdir, "device": endless,
}  # fmt: skip


@pytest.fixture(params=ODD.values(), ids=ODD)
def odd(request, place):
    """Something that is no regular file, under the name ``ready``; beside the directory a file that root owns."""
    (place.parent / "of-root").write_text("secret")
    os.utime(place.parent / "of-root", (5, 5))
    request.param(place / "ready")
    yield place
    assert (place.parent / "of-root").read_text() == "secret"
    assert (place.parent / "of-root").stat().st_mtime == 5
    assert not (place.parent / "nologin").exists()


def test_nothing_odd_is_read_or_counts(odd, directory):
    began = time.monotonic()
    assert directory.text("ready") == ""
    assert not directory.has("ready")
    with pytest.raises(OSError, match=r"."):
        directory.read("ready")
    assert time.monotonic() - began < 20


def test_nothing_odd_is_touched_created_over_or_renamed(odd, directory):
    for act in (
        lambda: directory.touch("ready"),
        lambda: directory.create("ready", "x", 0o600),
        lambda: directory.rename("ready", "withdrawn"),
    ):
        with pytest.raises(OSError, match=r"."):
            act()


def test_a_replacement_never_writes_through_what_is_there(odd, directory):
    try:
        directory.replace("ready", "1\n")
    except IsADirectoryError:
        assert os.listdir(odd) == ["ready"]
        return
    assert directory.text("ready") == "1\n"


def test_what_is_odd_is_removed_itself(odd, directory):
    try:
        directory.remove("ready")
    except IsADirectoryError:
        return
    assert os.listdir(odd) == []


def test_a_file_without_end_is_read_up_to_its_bound(place, directory):
    huge(place / "ready")
    assert len(directory.read("ready")) == MAX_BYTES
    assert len(directory.read("ready", 10)) == 10


def test_the_directory_itself_and_those_below_it_are_no_links(tmp_path):
    (tmp_path / "real/inner").mkdir(parents=True)
    (tmp_path / "real/inner/ready").write_text("1")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real/other").symlink_to(tmp_path / "real/inner")
    assert ForeignDirectory(str(tmp_path / "real"), "inner").text("ready") == "1"
    assert ForeignDirectory(str(tmp_path / "link/inner")).text("ready") == "1", "above it root's own"
    for path, names in ((tmp_path / "link", ("inner",)), (tmp_path / "real", ("other",))):
        found = ForeignDirectory(str(path), *names)
        assert (found.text("ready"), found.has("ready"), found.exists()) == ("", False, False)


def test_a_token_of_another_user_is_none(place, directory):
    (place / "operator").write_text("token")
    owner = os.getuid()
    assert directory.text("operator", owner=owner) == "token"
    assert directory.text("operator", owner=owner + 1) == ""


def test_modes_do_not_depend_on_the_umask(place, directory):
    directory.create("operator", "x", 0o640, os.getgid())
    directory.replace("unhealthy", "x")
    assert (place / "operator").stat().st_mode & 0o777 == 0o640
    assert (place / "unhealthy").stat().st_mode & 0o777 == 0o644
    with pytest.raises(FileExistsError):
        directory.create("operator", "x", 0o640)


def test_a_touch_sets_the_time_and_keeps_the_content(place, directory):
    directory.touch("watched")
    (place / "watched").write_text("x")
    os.utime(place / "watched", (5, 5))
    directory.touch("watched")
    assert (place / "watched").read_text() == "x"
    assert time.time() - (place / "watched").stat().st_mtime < 60


def test_a_missing_directory_is_no_error_where_nothing_is_expected(tmp_path):
    directory = ForeignDirectory(str(tmp_path / "gone"))
    directory.remove("ready")
    assert (directory.text("ready"), directory.has("ready"), directory.exists()) == ("", False, False)
    with pytest.raises(FileNotFoundError):
        directory.replace("ready", "1")
    with pytest.raises(FileNotFoundError):
        directory.touch("ready")
