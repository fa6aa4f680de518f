# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import foreign_trees_host
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


@pytest.fixture
def during(monkeypatch):
    """Have something done just after remove_tree has looked at the mounts, or as it enters the first directory."""

    def patch(work, function="check_unmounted"):
        real = getattr(foreign_trees_host, function)
        waiting = [work]

        def call(argument):
            found = real(argument)
            if waiting:
                waiting.pop()()
            return found

        monkeypatch.setattr(foreign_trees_host, function, call)

    return patch


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_a_mount_that_its_user_moves_in_during_the_removal_keeps_its_files(tmp_path, during, ignore_errors):
    (tmp_path / "tree/a").mkdir(parents=True)
    with bound(tmp_path / "shared", tmp_path / "home/work/data"):
        during(lambda: (tmp_path / "home/work").rename(tmp_path / "tree/a/work"))
        if ignore_errors:
            remove_tree(str(tmp_path / "tree"), ignore_errors=True)
        else:
            with pytest.raises(OSError, match=r"mounted during the removal.*unmount it: '.*/tree/a/work/data'"):
                remove_tree(str(tmp_path / "tree"))
        (tmp_path / "tree/a/work").rename(tmp_path / "home/work")
    remove_tree(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()


def test_a_directory_that_its_user_moves_away_takes_the_removal_nowhere(tmp_path, during):
    for name in ("tree/a/b", "victim/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim/file").touch()
    # The tree itself has been read, "a" is the next.
    during(lambda: (tmp_path / "tree").rename(tmp_path / "victim/tree"), "_kinds_of")
    with pytest.raises(OSError, match=r"moved during the removal; run this again: '.*/tree'"):
        remove_tree(str(tmp_path / "tree"))
    assert sorted(os.listdir(tmp_path / "victim")) == ["a", "file", "tree"]


def test_a_directory_that_becomes_a_link_during_the_removal_leads_nowhere(tmp_path, during):
    for name in ("tree/a", "victim"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "victim/file").touch()

    def exchange():
        (tmp_path / "tree/a").rmdir()
        (tmp_path / "tree/a").symlink_to(tmp_path / "victim")

    during(exchange, "_kinds_of")
    remove_tree(str(tmp_path / "tree"))
    assert (tmp_path / "victim/file").exists() and not (tmp_path / "tree").exists()


def test_what_cannot_be_removed_remains_and_the_rest_goes(tmp_path, during):
    for name in ("a", "b", "c"):
        (tmp_path / "tree" / name).mkdir(parents=True)
        (tmp_path / "tree" / name / "file").touch()
    during((tmp_path / "tree/c/file").unlink, "_kinds_of")
    with bound(tmp_path / "shared", tmp_path / "place"):
        subprocess.run(["mount", "--bind", str(tmp_path / "shared/file"), str(tmp_path / "tree/b/file")], check=True)
        try:
            with pytest.raises(MountedError):
                remove_tree(str(tmp_path / "tree"))
            foreign_trees_host._Removal(str(tmp_path / "tree"), ignore_errors=True).run()
            assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("tree/**/*")) == [
                "tree/b", "tree/b/file",
            ]  # fmt: skip
        finally:
            subprocess.run(["umount", str(tmp_path / "tree/b/file")], check=True)
    remove_tree(str(tmp_path / "tree"))


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_of_a_link_only_itself_is_removed(tmp_path, ignore_errors):
    (tmp_path / "tree").mkdir()
    (tmp_path / "link").symlink_to("tree")
    remove_tree(str(tmp_path / "link"), ignore_errors=ignore_errors)
    assert os.listdir(tmp_path) == ["tree"]


def test_an_error_names_the_file_that_cannot_be_removed(tmp_path, monkeypatch):
    (tmp_path / "top/a").mkdir(parents=True)
    (tmp_path / "top/a/file").write_text("x")

    def unlink(name, *, dir_fd):
        raise PermissionError(1, "Operation not permitted", name)

    monkeypatch.setattr(foreign_trees_host.os, "unlink", unlink)
    with pytest.raises(OSError, match=f"'{tmp_path}/top/a/file'"):
        remove_tree(str(tmp_path / "top"))
