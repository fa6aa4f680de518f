# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError
from ansible_collections.baremetal.inference.plugins.module_utils.weights.owners_host import Owners

from tests.fakes.weights_store import A, B, open_to_others


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "models"
    for revision in (A, B):
        (root / "org/name" / revision / "sub").mkdir(parents=True)
        (root / "org/name" / revision / "sub/file").touch()
    return root


def test_what_only_this_user_can_change_is_not_foreign(root):
    owners = Owners(f"{root}/")
    assert owners.find_foreign(str(root / "org/name" / A), ["sub/file", "missing"]) == set()
    assert owners.find_revisions() == ([str(root / "org/name" / A), str(root / "org/name" / B)], [])


@pytest.mark.parametrize("place", ["sub/file", "sub", "", "..", "../.."])
def test_what_others_can_write_is_foreign_with_all_below_it(root, place):
    directory = root / "org/name" / A
    (directory / place).resolve().chmod(0o777)
    owners = Owners(str(root))
    assert owners.find_foreign(str(directory), ["sub/file"]) == {"sub/file"}
    others = owners.find_foreign(str(root / "org/name" / B), ["sub/file"])
    assert others == ({"sub/file"} if place.startswith("..") else set())


def test_nothing_below_a_directory_of_another_user_is_listed(root):
    (root / "org/name").chmod(0o777)
    assert Owners(str(root)).find_revisions() == ([], [str(root / "org/name")])


def test_a_link_of_an_admin_to_another_disk_is_followed(root, tmp_path):
    (root / "org").rename(tmp_path / "disk")
    (root / "org").symlink_to(tmp_path / "disk")
    assert Owners(str(root)).find_revisions()[0] == [str(root / "org/name" / A), str(root / "org/name" / B)]


def test_other_names_and_links_are_no_revisions(root):
    (root / "README").touch()
    (root / "org/name" / f".{A}.partial").mkdir()
    (root / "org/name/main").mkdir()
    (root / "org/name" / ("c" * 40)).symlink_to(A)
    assert Owners(str(root)).find_revisions() == ([str(root / "org/name" / A), str(root / "org/name" / B)], [])


def test_no_root_has_nothing(tmp_path):
    assert Owners(str(tmp_path / "none")).find_revisions() == ([], [])


@pytest.mark.parametrize("through", ["", "way/"])
@pytest.mark.parametrize("place", ["alice/pool", "alice", "alice/pool/org"])
def test_a_link_of_an_admin_into_a_directory_of_another_user_is_exposed(root, tmp_path, place, through):
    """Also where another link of that user leads on to a directory of root."""
    (tmp_path / "alice/pool").mkdir(parents=True)
    (root / "org").rename(tmp_path / "alice/pool/org")
    (tmp_path / "way").symlink_to("alice")
    (root / "org").symlink_to(f"../{through or 'alice/'}pool/org")
    assert Owners(str(root)).exposure(str(root / "org/name")) == ""
    open_to_others(tmp_path / place)
    exposure = Owners(str(root)).exposure(str(root / "org/name"))
    assert exposure.endswith(f" {tmp_path}/{place}")
    with pytest.raises(WeightsError, match="nothing is fetched into it, because"):
        Owners(str(root)).check_parent(str(root / "org/name" / A))
    assert Owners(str(root)).find_revisions() == ([], [str(root / "org")])


def test_a_link_that_another_user_can_exchange_is_exposed_wherever_it_leads(root, tmp_path):
    (tmp_path / "alice").mkdir()
    (root / "org").rename(tmp_path / "disk")
    (tmp_path / "alice/link").symlink_to(tmp_path / "disk")
    (root / "org").symlink_to(tmp_path / "alice/link")
    open_to_others(tmp_path / "alice")
    assert Owners(str(root)).exposure(str(root / "org/name")).endswith(f" {tmp_path}/alice")


def test_a_place_in_which_all_make_files_is_a_way_but_no_directory_of_models(root, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    scratch.chmod(0o1777)
    (root / "org").rename(scratch / "org")
    (root / "org").symlink_to(scratch / "org")
    assert Owners(str(root)).exposure(str(root / "org/name")) == ""
    (root / "none").symlink_to(scratch / "none")
    (root / "all").symlink_to(scratch)
    for name in ("none/name", "all"):
        assert Owners(str(root)).exposure(str(root / name)) == f"others can write {scratch}"


def test_links_without_end_and_files_are_no_way(root):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert Owners(str(root)).exposure(str(root / "a/name")) == ""
    (root / "file").touch()
    assert Owners(str(root)).exposure(str(root / "file/name")) == f"{root}/file is no directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_is_named(root):
    os.chown(root / "org", 65534, 65534)
    assert Owners(str(root)).exposure(str(root / "org/name")) == f"nobody owns {root}/org"
    os.chown(root / "org", 54321, -1)
    assert Owners(str(root)).exposure(str(root / "org/name")) == f"uid 54321 owns {root}/org"
