# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of a role, compared with what is there and put in place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import file_set_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.file_set_host import Entry, FileSetError

DEFAULTS = {"state": "file", "mode": "0640", "group": None, "content": "text\n", "target": None}

from tests.fakes.nested import make_nested


def entry(path: Path, **options: Any) -> Entry:
    return Entry.from_dict({**DEFAULTS, "path": str(path), **options})


def put(requested: Entry) -> bool:
    """Put an entry in place where it differs; return whether it did."""
    found = file_set_host.inspect(requested)
    if not file_set_host.differs(requested, found, file_set_host.group_id(requested)):
        return False
    file_set_host.put_in_place(requested, found)
    return True


@pytest.mark.parametrize(
    "options",
    [{}, {"state": "directory", "mode": "0750"}, {"state": "link", "target": "/nowhere", "mode": None}],
    ids=["file", "directory", "link"],
)
def test_an_entry_is_put_in_place_once(tmp_path, options):
    requested = entry(tmp_path / "name", **options)
    assert put(requested)
    assert not put(requested)


def test_a_changed_mode_keeps_the_file_and_is_a_change(tmp_path):
    put(entry(tmp_path / "name"))
    before = (tmp_path / "name").stat()
    assert put(entry(tmp_path / "name", mode="0600"))
    after = (tmp_path / "name").stat()
    assert (after.st_ino, stat.S_IMODE(after.st_mode)) == (before.st_ino, 0o600)


def test_a_link_is_replaced_by_a_file_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "name").symlink_to(tmp_path / "target")
    assert put(entry(tmp_path / "name"))
    assert (tmp_path / "name").read_text() == "text\n" and not (tmp_path / "name").is_symlink()
    assert (tmp_path / "target").read_text() == "precious"


def test_a_link_to_a_directory_serves_as_that_directory(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "name").symlink_to(tmp_path / "elsewhere")
    assert not put(entry(tmp_path / "name", state="directory", mode="0755"))
    assert os.readlink(tmp_path / "name") == str(tmp_path / "elsewhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_directory_that_another_user_links_to_keeps_its_mode(tmp_path):
    (tmp_path / "secrets").mkdir(mode=0o700)
    (tmp_path / "name").symlink_to(tmp_path / "secrets")
    os.lchown(tmp_path / "name", 65534, 65534)
    with pytest.raises(FileSetError, match="name is a link; expected a directory"):
        put(entry(tmp_path / "name", state="directory", mode="0755"))
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


def test_a_file_or_a_link_is_removed_once(tmp_path):
    requested = entry(tmp_path / "name", state="absent", mode=None)
    assert not put(requested)
    (tmp_path / "target").write_text("precious")
    for make in ((tmp_path / "name").touch, lambda: (tmp_path / "name").symlink_to(tmp_path / "target")):
        make()
        assert put(requested)
        assert not put(requested)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_what_another_user_has_made_thousands_of_levels_deep_is_removed(tmp_path):
    # ansible.builtin.file fails there, and with it every further run.
    requested = entry(tmp_path / "name", state="removed", mode=None)
    assert not put(requested)
    for make in (make_nested, os.mkfifo, os.mknod):
        make(tmp_path / "name")
        assert put(requested)
        assert not put(requested)
    (tmp_path / "name").symlink_to(tmp_path.parent)
    assert put(requested)
    assert tmp_path.exists() and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("made", "state", "expected"),
    [
        ("directory", "file", "is a directory; expected a file"),
        ("file", "directory", "is a file; expected a directory"),
        ("fifo", "file", "is a special file; expected a file"),
        ("directory", "absent", "is a directory; expected a file"),
    ],
)
def test_what_cannot_be_replaced_is_refused(tmp_path, made, state, expected):
    path = tmp_path / "name"
    {"directory": path.mkdir, "file": path.touch, "fifo": lambda: os.mkfifo(path)}[made]()
    with pytest.raises(FileSetError, match=expected):
        file_set_host.inspect(entry(path, state=state))


def test_a_group_that_does_not_exist_differs_and_is_named_when_it_is_needed(tmp_path):
    requested = entry(tmp_path / "name", group="no-such-group")
    found = file_set_host.inspect(requested)
    assert file_set_host.differs(requested, found, file_set_host.group_id(requested))
    with pytest.raises(FileSetError, match="the group 'no-such-group' does not exist"):
        file_set_host.put_in_place(requested, found)
    assert not (tmp_path / "name").exists()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"mode": "rw-r--r--"}, "mode 'rw-r--r--' is not octal; expected one like 0644"),
        ({"mode": None}, "a file needs a mode"),
        ({"path": "etc/x"}, "expected an absolute path"),
    ],
)
def test_bad_options_are_named(tmp_path, options, expected):
    with pytest.raises(FileSetError, match=expected):
        Entry.from_dict({**DEFAULTS, "path": str(tmp_path / "name"), **options})


def test_what_another_user_puts_in_place_of_a_file_is_neither_followed_nor_waited_for(tmp_path):
    (tmp_path / "secret").write_text("s")
    (tmp_path / "secret").chmod(0o600)
    requested = entry(tmp_path / "name", mode="0644")
    put(entry(tmp_path / "name", mode="0600"))
    found = file_set_host.inspect(requested)
    for swapped in (lambda: (tmp_path / "name").symlink_to(tmp_path / "secret"), lambda: os.mkfifo(tmp_path / "name")):
        (tmp_path / "name").unlink()
        swapped()
        with pytest.raises(FileSetError):
            file_set_host.put_in_place(requested, found)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_file_of_another_user_is_written_anew(tmp_path):
    put(entry(tmp_path / "name"))
    with open(tmp_path / "name", "r+") as held:
        os.fchown(held.fileno(), 65534, -1)
        assert put(entry(tmp_path / "name"))
        assert os.stat(tmp_path / "name").st_uid == 0 and os.fstat(held.fileno()).st_nlink == 0
