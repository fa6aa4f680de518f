# SPDX-License-Identifier: GPL-3.0-or-later
"""Links of the user and of root; those of others are in the tests of pages and of the discovery cache."""

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.own_links_host import follow_links


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    (tmp_path / "down").symlink_to("a/b")
    (tmp_path / "a" / "b" / "up").symlink_to("../file")
    (tmp_path / "whole").symlink_to(tmp_path / "down")
    (tmp_path / "nowhere").symlink_to("none/of/these")


@pytest.mark.parametrize("path", ["a/file", "down", "down/up", "whole/up", "whole/../file", "nowhere", "nowhere/x",
                                  "a/file/x", "none/../a", ".", "/", "//tmp"])  # fmt: skip
def test_links_lead_where_they_lead_for_python(path):
    assert follow_links(path) == os.path.realpath(os.path.abspath(path))


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels"):
        follow_links("round")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives links away")
def test_a_link_in_the_middle_of_the_way_counts_too(tmp_path):
    os.lchown(tmp_path / "down", 65534, 65534)
    with pytest.raises(PermissionError, match=f"{tmp_path}/down is a link of another user .uid 65534.; name another"):
        follow_links("whole/up")
