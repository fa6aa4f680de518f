# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.owners_host import Owners

from tests.fakes.weights_store import A, B


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
