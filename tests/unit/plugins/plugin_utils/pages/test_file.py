# SPDX-License-Identifier: GPL-3.0-or-later
"""Replace a page in one step."""

from __future__ import annotations

import os
import stat

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.pages.file import PageError, PageFile


def test_a_page_is_put_in_place_whole(tmp_path):
    path = tmp_path / "fleet.html"
    page = PageFile("fleet_page", str(path), 0o644)
    assert page.before is None
    page.write("<p>\u2013")
    assert path.read_text(encoding="utf-8") == "<p>\u2013"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["fleet.html"]


def test_a_mode_and_a_link_are_kept(tmp_path):
    path, link = tmp_path / "fleet.html", tmp_path / "link.html"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    page = PageFile("fleet_page", str(link), 0o644)
    assert page.before == "old"
    page.write("new")
    assert link.is_symlink() and path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("link", ["x.html", "directory"])
def test_a_link_of_another_user_chooses_no_file(tmp_path, link, monkeypatch):
    """Who plants it in /tmp would choose which of the user's files is replaced."""
    precious = tmp_path / "own" / "x.html"
    precious.parent.mkdir()
    precious.write_text("ssh-ed25519 AAAA")
    (tmp_path / link).symlink_to(precious if link == "x.html" else precious.parent)
    lstat = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: os.stat_result((*(found := lstat(path))[:4], 65534, *found[5:])))
    path = tmp_path / link / ("" if link == "x.html" else "x.html")
    with pytest.raises(PageError, match=f"fleet_page: .*{tmp_path}/{link} is a link of another user .uid 65534.; name"):
        PageFile("fleet_page", str(path), 0o644).write("<html>")
    assert precious.read_text() == "ssh-ed25519 AAAA"


@pytest.mark.parametrize(("path", "message"), [(".", "is in the way"), ("none/x.html", "is not a directory"),
                                               ("file/x.html", "Not a directory")])  # fmt: skip
def test_a_path_that_cannot_be_is_one_sentence(tmp_path, path, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(PageError, match=f"fleet_page: .*{message}"):
        PageFile("fleet_page", str(tmp_path / path), 0o644)


def test_nothing_is_left_of_a_page_that_cannot_be_written(tmp_path, monkeypatch):
    def full(_source, _target):
        raise OSError(28, "No space left on device")

    page = PageFile("fleet_page", str(tmp_path / "fleet.html"), 0o644)
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(PageError, match="No space left"):
        page.write("x")
    assert os.listdir(tmp_path) == []
