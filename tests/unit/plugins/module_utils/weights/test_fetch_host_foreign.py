# SPDX-License-Identifier: GPL-3.0-or-later
"""Fetches into a directory in which other users may make files, by its mode or by an ACL."""

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.weights import fetch_host, files_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import (
    ProgressTracker,
    WeightsStore,
    choose_source,
    fetch_weights,
    inspect_weights,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import remove_unlisted_files
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.owners_host import Owners
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import Access, parse_sources

from tests.fakes.default_acl import has_default_acl, modes_below, set_default_acl
from tests.fakes.file_server import FileServer, serving
from tests.fakes.weights_store import open_to_others

CONTENT = b"w" * 5000
NAME = "sub/model.safetensors"
MANIFEST = parse_manifest(
    {
        "repository": "example/tiny",
        "revision": "b" * 40,
        "files": {NAME: {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}},
    }
)
PARTIAL = f"example/tiny/.{MANIFEST.revision}.partial"


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "models"
    root.mkdir()
    return root


@pytest.fixture
def fetch(root, monkeypatch):
    """Fetch the model."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving(FileServer()) as server:
        server.files[f"/{MANIFEST.path}/{NAME}"] = CONTENT
        site = WeightsStore(
            str(root), parse_sources([server.url]), (Access(),), str(root.parent), lambda _unit: False, Settings()
        )

        def run():
            chosen = choose_source(inspect_weights(site.root, MANIFEST), site)
            return fetch_weights(chosen, site, lambda _line: None, ProgressTracker())

        yield run


def before_the_directories_are_made(monkeypatch, work):
    real = fetch_host.make_directories

    def make(path):
        work()
        real(path)

    monkeypatch.setattr(fetch_host, "make_directories", make)


def test_a_default_acl_gives_its_user_nothing_that_root_works_in(root, fetch):
    set_default_acl(root)
    fetch()
    model = f"example/tiny/{MANIFEST.revision}"
    assert modes_below(root) == dict.fromkeys(("example", "example/tiny", model, f"{model}/sub"), 0o755)
    assert not has_default_acl(root / "example") and not Owners(str(root)).is_exposed(str(root / model))
    assert (root / model / NAME).read_bytes() == CONTENT


def test_a_directory_that_another_user_puts_there_meanwhile_gets_nothing(root, fetch, monkeypatch):
    def foreign():
        (root / "example/tiny").mkdir(parents=True)
        open_to_others(root / "example")

    before_the_directories_are_made(monkeypatch, foreign)
    with pytest.raises(WeightsError, match=r"example/tiny: nothing is fetched into it, because .* could exchange it"):
        fetch()
    assert os.listdir(root / "example/tiny") == []


def test_a_directory_that_another_user_takes_away_again_is_an_error(root, fetch, monkeypatch):
    monkeypatch.setattr(fetch_host, "make_directories", lambda _path: None)
    with pytest.raises(WeightsError, match=r"because another user has taken .*/example away"):
        fetch()
    assert os.listdir(root) == []


def test_a_directory_that_comes_and_goes_while_its_parents_are_made_is_an_error(root, fetch, monkeypatch):
    before_the_directories_are_made(monkeypatch, (root / "example").touch)
    with pytest.raises(WeightsError, match="example/tiny: cannot be created: File exists"):
        fetch()


def test_a_partial_directory_with_one_that_others_can_write_begins_again(root, fetch):
    (root / PARTIAL / "sub").mkdir(parents=True)
    (root / PARTIAL / NAME).write_bytes(CONTENT)
    inode = (root / PARTIAL / NAME).stat().st_ino
    (root / PARTIAL / "sub").chmod(0o777)
    with (root / PARTIAL / NAME).open("rb"):
        fetch()
    published = root / MANIFEST.path / NAME
    assert published.stat().st_ino != inode and published.parent.stat().st_mode & 0o777 == 0o755


def test_a_directory_that_becomes_a_link_loses_no_file_elsewhere(root, monkeypatch):
    for place in (root / PARTIAL / "sub", root / "other"):
        place.mkdir(parents=True)
        (place / "file").touch()
    walk = files_host.walk_tree

    def exchanged(top):
        for directory, below, names in walk(top):
            if directory.endswith("/sub"):
                os.rename(directory, root / "away")
                os.symlink(root / "other", directory)
            yield directory, below, names

    monkeypatch.setattr(files_host, "walk_tree", exchanged)
    with pytest.raises(OSError, match="sub"):
        remove_unlisted_files(inspect_weights(str(root), MANIFEST))
    assert (root / "other/file").exists()
