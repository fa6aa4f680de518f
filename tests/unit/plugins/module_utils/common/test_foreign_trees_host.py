# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import os
import shutil
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_trees_host import (
    remove_tree,
    walk_tree,
)
from ansible_collections.baremetal.inference.plugins.module_utils.common.mounts_host import MountedError

from tests.fakes.mounts import bound
from tests.fakes.nested import DEPTH, make_nested


@pytest.fixture
def deep(tmp_path):
    """A directory with as many below each other as its user liked to make."""
    top = tmp_path / "chat"
    make_nested(top)
    (top / "file").write_text("x")
    (top / "link").symlink_to("/")
    yield top
    subprocess.run(["rm", "-rf", str(top)], check=True)


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_a_tree_that_takes_more_descriptors_than_there_are_is_removed(tmp_path, monkeypatch, ignore_errors):
    def rmtree(path, ignore_errors=False):
        if not ignore_errors:
            raise OSError(errno.EMFILE, "Too many open files", path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    (tmp_path / "a/b").mkdir(parents=True)
    remove_tree(str(tmp_path / "a"), ignore_errors=ignore_errors)
    assert not (tmp_path / "a").exists()


def test_a_tree_that_is_deeper_than_any_recursion_is_walked_and_removed(deep):
    found = list(walk_tree(str(deep)))
    assert found[0] == (str(deep), ["d"], ["file", "link"]) or found[0] == (str(deep), ["d"], ["link", "file"])
    assert 1000 < len(found) <= DEPTH + 1
    remove_tree(str(deep))
    assert not deep.exists()


def test_it_is_the_walk_of_the_standard_library(tmp_path):
    for name in ("a/b", "a/c", "d"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("")
    (tmp_path / "a/up").symlink_to(tmp_path)

    def plain(walk):
        return sorted((top, sorted(below), sorted(names)) for top, below, names in walk)

    # os.walk counts a link to a directory as a directory that it does not enter.
    expected = [(top, [n for n in below if n != "up"], names) for top, below, names in plain(os.walk(tmp_path))]
    found = [(top, below, [n for n in names if n != "up"]) for top, below, names in plain(walk_tree(str(tmp_path)))]
    assert found == expected


def test_what_is_missing_is_an_error_unless_errors_are_ignored(tmp_path):
    assert list(walk_tree(str(tmp_path / "none"))) == []
    remove_tree(str(tmp_path / "none"), ignore_errors=True)
    with pytest.raises(FileNotFoundError):
        remove_tree(str(tmp_path / "none"))


def test_a_directory_that_becomes_a_link_while_it_is_walked_leads_nowhere(tmp_path):
    for name in ("tree/a/b", "victim/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim/b/file").touch()
    walked = walk_tree(str(tmp_path / "tree"))
    assert next(walked)[1] == ["a"]
    (tmp_path / "tree/a").rename(tmp_path / "tree/other")
    (tmp_path / "tree/a").symlink_to(tmp_path / "victim")
    assert list(walked) == []


def test_a_directory_above_that_becomes_a_link_while_it_is_walked_leads_nowhere(tmp_path):
    for name in ("tree/a/b", "victim/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim/b/file").touch()
    walked = walk_tree(str(tmp_path / "tree"))
    assert [next(walked)[1], next(walked)[1]] == [["a"], ["b"]]
    (tmp_path / "tree/a").rename(tmp_path / "tree/other")
    (tmp_path / "tree/a").symlink_to(tmp_path / "victim")
    assert list(walked) == []


@pytest.mark.parametrize("link", ["tree/a", "tree/a/b"])
def test_a_link_on_the_way_from_the_top_leads_nowhere(tmp_path, link):
    (tmp_path / "victim/b").mkdir(parents=True)
    (tmp_path / "victim/b/file").touch()
    (tmp_path / link).parent.mkdir(parents=True)
    (tmp_path / link).symlink_to(tmp_path / ("victim" if link == "tree/a" else "victim/b"))
    assert list(walk_tree(str(tmp_path / "tree"), "a/b")) == []
    (tmp_path / "root").symlink_to("victim")
    assert list(walk_tree(str(tmp_path / "root"), "b")) == [(str(tmp_path / "root/b"), [], ["file"])]


@pytest.mark.parametrize("below", ["", "/z/mounted"])
def test_nothing_is_removed_where_something_is_mounted(tmp_path, below):
    for name in ("a", "z"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "file").touch()
    place = tmp_path / f"tree{below}"
    with bound(tmp_path / "shared", place):
        remove_tree(str(tmp_path / "tree"), ignore_errors=True)
        with pytest.raises(MountedError, match=f"because {place} is mounted there"):
            remove_tree(str(tmp_path / "tree"))
        assert (place / "file").exists()
    assert (tmp_path / "tree/a/file").exists()
    remove_tree(str(tmp_path / "tree"))
