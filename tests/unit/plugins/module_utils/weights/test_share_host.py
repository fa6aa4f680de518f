# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import os
import shutil

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings
from ansible_collections.baremetal.inference.plugins.module_utils.weights.fetch_host import (
    ProgressTracker,
    WeightsStore,
    check_preconditions,
    choose_source,
    fetch_weights,
    inspect_weights,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import WeightsError, parse_manifest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.share_host import find_shared_files
from ansible_collections.baremetal.inference.plugins.module_utils.weights.sources import Access, parse_sources

SHARD, OTHER, SMALL = bytes(2**20), b"x" * 2**20, b"{}"


def manifest_of(name, revision, files):
    listed = {
        file: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for file, content in files.items()
    }
    return parse_manifest({"repository": f"org/{name}", "revision": revision * 40, "files": listed})


FIRST = manifest_of("first", "a", {"model-1.safetensors": SHARD, "config.json": SMALL})
# The same shard under another name, one of its own, and a small file that is the same.
SECOND = manifest_of("second", "b", {"weights/w1.safetensors": SHARD, "w2.safetensors": OTHER, "config.json": SMALL})
CONTENTS = {FIRST.path: {"model-1.safetensors": SHARD, "config.json": SMALL}}
CONTENTS[SECOND.path] = {"weights/w1.safetensors": SHARD, "w2.safetensors": OTHER, "config.json": SMALL}


@pytest.fixture
def site(tmp_path):
    for path, files in CONTENTS.items():
        for name, content in files.items():
            file = tmp_path / "source" / path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    sources = parse_sources([f"file://{tmp_path}/source"])
    root = str(tmp_path / "models")
    return WeightsStore(root, sources, (Access(),), str(tmp_path), lambda _unit: False, Settings())


def fetch(site, manifest):
    lines = []
    state = inspect_weights(site.root, manifest)
    check_preconditions([state], site)
    return fetch_weights(choose_source(state, site), site, lines.append, ProgressTracker()), lines


def inode(site, manifest, name):
    return os.stat(os.path.join(site.root, manifest.path, name)).st_ino


def test_a_shard_that_another_model_has_is_stored_once(site):
    fetch(site, FIRST)
    result, lines = fetch(site, SECOND)
    assert inode(site, FIRST, "model-1.safetensors") == inode(site, SECOND, "weights/w1.safetensors")
    assert inode(site, FIRST, "config.json") != inode(site, SECOND, "config.json")
    assert result.transferred == len(OTHER) + len(SMALL)
    assert any("1 files are those of other models here: weights/w1.safetensors" in line for line in lines)
    for manifest in (FIRST, SECOND):
        assert not inspect_weights(site.root, manifest, full=True).changed


def test_a_damaged_copy_is_not_shared(site):
    fetch(site, FIRST)
    path = os.path.join(site.root, FIRST.path, "model-1.safetensors")
    os.utime(path, (1, 1))
    assert find_shared_files(site.root, inspect_weights(site.root, SECOND)) == {}
    fetch(site, SECOND)
    assert inode(site, FIRST, "model-1.safetensors") != inode(site, SECOND, "weights/w1.safetensors")


@pytest.mark.parametrize("way", ["mode", "owner"])
@pytest.mark.parametrize("place", ["model-1.safetensors", ".verified.json", "", "..", "../.."])
def test_what_another_user_can_change_is_neither_linked_nor_believed(site, place, way):
    # The link would stay that user's file, who rewrites it and sets its time back.
    fetch(site, FIRST)
    path = os.path.normpath(os.path.join(site.root, FIRST.path, place))
    if way == "mode":
        os.chmod(path, os.stat(path).st_mode | 0o022)
    elif os.geteuid():
        pytest.skip("only root can give files away")
    else:
        os.chown(path, 65534, 65534)
    # Both are models of one organisation, whose directory is everybody's now.
    above = place == "../.."
    state = inspect_weights(site.root, SECOND)
    assert find_shared_files(site.root, state) == {}
    if above:
        with pytest.raises(WeightsError, match=f"^{site.root}/org/second: nothing is fetched into it"):
            fetch(site, SECOND)
    else:
        fetch(site, SECOND)
        assert inode(site, FIRST, "model-1.safetensors") != inode(site, SECOND, "weights/w1.safetensors")
    mine = os.path.join(site.root, FIRST.path, "model-1.safetensors")
    before = os.stat(mine)
    with open(mine, "r+b") as file:
        file.write(b"EVIL")
    os.utime(mine, ns=(before.st_atime_ns, before.st_mtime_ns))
    found = inspect_weights(site.root, FIRST)
    assert "model-1.safetensors" in [file.name for file in found.missing]
    if place.startswith(".."):
        with pytest.raises(WeightsError, match=f"^{site.root}/org/first: nothing is fetched into it"):
            fetch(site, FIRST)
    else:
        fetch(site, FIRST)
        assert not inspect_weights(site.root, FIRST, full=True).changed


def test_the_owner_of_the_root_of_weights_is_trusted(site):
    # An NFS server makes root's files those of another user.
    if os.geteuid():
        pytest.skip("only root can give files away")
    fetch(site, FIRST)
    for parent, _directories, names in os.walk(site.root):
        for name in (".", *names):
            os.chown(os.path.join(parent, name), 65534, 65534)
    assert not inspect_weights(site.root, FIRST).foreign
    assert find_shared_files(site.root, inspect_weights(site.root, SECOND))


def test_damage_that_no_stamp_shows_is_read_before_it_is_published(site):
    fetch(site, FIRST)
    path = os.path.join(site.root, FIRST.path, "model-1.safetensors")
    before = os.stat(path)
    with open(path, "r+b") as file:
        file.write(b"damage")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    fetch(site, SECOND)
    assert not inspect_weights(site.root, SECOND, full=True).changed
    assert inode(site, FIRST, "model-1.safetensors") != inode(site, SECOND, "weights/w1.safetensors")


def test_a_repair_of_one_leaves_the_other(site):
    fetch(site, FIRST)
    fetch(site, SECOND)
    os.unlink(os.path.join(site.root, FIRST.path, "model-1.safetensors"))
    fetch(site, FIRST)
    assert inode(site, FIRST, "model-1.safetensors") == inode(site, SECOND, "weights/w1.safetensors")
    assert not inspect_weights(site.root, FIRST, full=True).changed


def test_where_links_are_impossible_the_file_is_fetched(site, monkeypatch):
    fetch(site, FIRST)

    def refuse(_source, _dest):
        raise OSError("links are not permitted")

    monkeypatch.setattr(os, "link", refuse)
    result, _lines = fetch(site, SECOND)
    assert result.transferred == len(SHARD) + len(OTHER) + len(SMALL)


def test_a_linked_file_takes_no_room(site, monkeypatch):
    fetch(site, FIRST)
    real = os.statvfs

    class Full:
        """A file system with room for the other shard only."""

        def __init__(self, path):
            self.found = real(path)

        def __getattr__(self, name):
            return 2**20 // self.found.f_frsize + 8 if name == "f_bavail" else getattr(self.found, name)

    monkeypatch.setattr(os, "statvfs", Full)
    check_preconditions([inspect_weights(site.root, SECOND)], site)
    os.unlink(os.path.join(site.root, FIRST.path, "model-1.safetensors"))
    with pytest.raises(WeightsError):
        check_preconditions([inspect_weights(site.root, SECOND)], site)


@pytest.fixture
def others(site):
    """The parent of a revision, which belongs to another user."""
    parent = os.path.dirname(os.path.join(site.root, FIRST.path))
    os.makedirs(parent)
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(parent, 65534, 65534)
    return parent


def test_nothing_is_fetched_into_a_directory_of_another_user(site, others):
    state = inspect_weights(site.root, FIRST)
    for call in (lambda: check_preconditions([state], site), lambda: fetch(site, FIRST)):
        with pytest.raises(
            WeightsError, match=r"nothing is fetched into it, because .* a copy that root has made"
        ) as error:
            call()
        assert str(error.value).startswith(f"{others}: ")
    with pytest.raises(WeightsError, match="nothing is fetched into it"):
        fetch_weights(choose_source(state, site), site, print, ProgressTracker())
    assert os.listdir(others) == []


def test_a_whole_model_in_a_directory_of_another_user_needs_no_lock_and_no_stamp(site, others):
    shutil.copytree(os.path.join(os.path.dirname(site.root), "source", FIRST.path), os.path.join(site.root, FIRST.path))
    state = inspect_weights(site.root, FIRST)
    assert (state.missing, state.changed) == ((), False)
    assert state.foreign


def test_a_partial_directory_of_the_user_who_owned_the_parent_before_begins_anew(site, others):
    partial = inspect_weights(site.root, FIRST).partial
    os.mkdir(partial)
    with open(os.path.join(partial, "config.json"), "wb") as file:
        file.write(SMALL)
    os.chown(partial, 65534, 65534)
    os.chown(others, 0, 0)
    outcome, _lines = fetch(site, FIRST)
    assert sorted(file.name for file in outcome.state.missing) == ["config.json", "model-1.safetensors"]
    assert os.stat(os.path.join(site.root, FIRST.path)).st_uid == 0
    assert outcome.transferred == len(SHARD) + len(SMALL)
