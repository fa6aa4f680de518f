# SPDX-License-Identifier: GPL-3.0-or-later
"""Publication of a model's directory: what is on the disk at each step, and what a kill leaves behind."""

from __future__ import annotations

import errno
import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import files_host as common
from ansible_collections.baremetal.inference.plugins.module_utils.common import foreign_trees_host
from ansible_collections.baremetal.inference.plugins.module_utils.common.mounts_host import MountedError
from ansible_collections.baremetal.inference.plugins.module_utils.weights import files_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import (
    ModelState,
    confirm_verified_files,
    has_expected_hash,
    link_verified_files,
    publish_model,
    read_stamp,
    remove_unlisted_files,
    stat_files,
    write_stamp,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import (
    Manifest,
    ManifestFile,
    WeightsError,
)

from tests.fakes.kills import killed_at
from tests.fakes.mounts import bound

REVISION = "a" * 40
FILES = {"config.json": b"{}", "original/deep/model.safetensors": b"weights"}


def made(store, revision):
    """Return a model whose new files are complete in the partial directory, with the old ones published or none."""
    files = tuple(ManifestFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items())
    manifest = Manifest(repository="example/tiny", revision=REVISION, files=files)
    state = ModelState(manifest, str(store / REVISION), (), files, False)
    for top, contents in ((state.partial, FILES), (state.directory, revision)):
        for name, data in (contents or {}).items():
            path = os.path.join(top, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
    return state


def contents_of(directory):
    found = {}
    for parent, _directories, names in os.walk(directory):
        for name in names:
            with open(os.path.join(parent, name), "rb") as file:
                found[os.path.relpath(os.path.join(parent, name), directory)] = file.read()
    return found


def test_every_directory_is_synced_before_it_gets_its_name_and_the_one_above_it_afterwards(tmp_path, monkeypatch):
    state, steps = made(tmp_path, None), []
    real_sync, real_rename = common.sync_directory, os.rename
    for module in (common, files_host):
        monkeypatch.setattr(
            module, "sync_directory", lambda path: (steps.append(os.path.relpath(path, tmp_path)), real_sync(path))
        )
    monkeypatch.setattr(files_host.os, "rename", lambda *names: (steps.append("rename"), real_rename(*names)))
    publish_model(state)
    partial = f".{REVISION}.partial"
    assert set(steps[:3]) == {partial, f"{partial}/original", f"{partial}/original/deep"}
    assert steps[3:] == ["rename", "."]


DAMAGED = {**FILES, "config.json": b"{"}


@pytest.mark.slow
@pytest.mark.parametrize("before", [None, DAMAGED], ids=["first", "repaired"])
def test_a_kill_at_any_step_leaves_the_old_directory_or_the_new_one_or_the_whole_partial_one(
    tmp_path, before, monkeypatch
):
    # A machine has any number of mounts; to read them is one step.
    for module in (foreign_trees_host, files_host):
        monkeypatch.setattr(module, "check_unmounted", lambda _path: None)
    ways = set()
    for call in range(1, 1000):
        store = tmp_path / str(call)
        store.mkdir()
        state = made(store, before)
        was_killed = killed_at(call, lambda state=state: publish_model(state))
        found = contents_of(state.directory) if os.path.isdir(state.directory) else None
        if found is None:
            # Nothing, or between the two renames of a repair.
            assert contents_of(state.partial) == FILES
            ways.add("partial")
        else:
            assert found in (before, FILES)
            ways.add("new" if found == FILES else "old")
        if not was_killed:
            break
    assert not was_killed
    assert found == FILES
    assert sorted(os.listdir(store)) == [REVISION]
    assert ways == ({"partial", "new"} if before is None else {"old", "partial", "new"})


@pytest.mark.parametrize("place", [f".{REVISION}.old/shared", f"{REVISION}/shared"])
def test_a_mount_in_what_a_repair_replaces_is_named_before_anything_changes(tmp_path, place):
    state = made(tmp_path, DAMAGED)
    with bound(tmp_path / "shared", tmp_path / place):
        with pytest.raises(MountedError, match=f"{place} is mounted there; unmount it first"):
            publish_model(state)
        assert contents_of(state.partial) == FILES
        assert (tmp_path / REVISION / "config.json").read_bytes() == b"{"
    publish_model(state)
    assert contents_of(state.directory) == FILES and not (tmp_path / f".{REVISION}.old").exists()


def test_the_partial_directory_shares_the_files_that_are_right(tmp_path):
    state = made(tmp_path, FILES)
    right = state.manifest.files
    link_verified_files(ModelState(state.manifest, state.directory, right, (), False))
    for name in FILES:
        assert os.path.samefile(os.path.join(state.partial, name), os.path.join(state.directory, name))


@pytest.mark.parametrize("odd", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_stamp_that_is_no_file_vouches_for_nothing_and_is_not_waited_for(tmp_path, odd):
    odd(tmp_path / ".verified.json")
    assert files_host.read_stamp(str(tmp_path)) == {}


MODEL = "original/deep/model.safetensors"


def verified(tmp_path):
    """Return a model that this run has fetched, with what it knows of its files."""
    state = made(tmp_path, None)
    known = stat_files(state.partial, state.manifest)
    touched = {name: os.lstat(os.path.join(state.partial, name)).st_ctime_ns for name in known}
    return state, known, touched


def rewritten(path, data, status):
    """Write a file in place, and set its times back."""
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_files_that_nobody_has_touched_are_not_read_again(tmp_path, monkeypatch):
    state, known, touched = verified(tmp_path)
    monkeypatch.setattr(files_host, "sha256_of", None)
    confirm_verified_files(state, known, touched)
    # Of files that an earlier run had verified, nobody knows when they were touched.
    confirm_verified_files(state, known, {})


def test_a_link_to_the_very_file_that_was_verified_is_refused(tmp_path):
    # Whoever owns the link could point it elsewhere once it is served.
    state, known, touched = verified(tmp_path)
    path, aside = os.path.join(state.partial, MODEL), tmp_path / "aside"
    os.rename(path, aside)
    os.symlink(aside, path)
    assert stat_files(state.partial, state.manifest) == known
    for when in (touched, {}):
        with pytest.raises(WeightsError, match=r"model\.safetensors: another process has changed it"):
            confirm_verified_files(state, known, when)
        # The link is removed, and what it pointed to stays.
        assert not os.path.lexists(path) and aside.read_bytes() == FILES[MODEL]
        os.symlink(aside, path)


def test_a_file_that_was_changed_with_its_time_set_back_is_found(tmp_path):
    state, known, touched = verified(tmp_path)
    path = os.path.join(state.partial, MODEL)
    rewritten(path, b"WEIGHTS", os.stat(path))
    assert stat_files(state.partial, state.manifest) == known
    with pytest.raises(WeightsError, match="another process has changed it since it was verified"):
        confirm_verified_files(state, known, touched)
    assert not os.path.exists(path)


def test_a_file_that_was_touched_and_is_still_right_is_read_once_and_kept(tmp_path):
    state, known, touched = verified(tmp_path)
    os.utime(os.path.join(state.partial, MODEL), ns=(1, 1))
    confirm_verified_files(state, known, touched)
    assert known == stat_files(state.partial, state.manifest) and known[MODEL].mtime_ns == 1


def test_a_file_that_has_vanished_is_named(tmp_path):
    state, known, touched = verified(tmp_path)
    os.unlink(os.path.join(state.partial, MODEL))
    with pytest.raises(WeightsError, match="another process has changed it"):
        confirm_verified_files(state, known, touched)


@pytest.mark.parametrize(("code", "raises"), [(errno.EIO, False), (errno.EACCES, True)])
def test_a_disk_that_cannot_read_a_file_any_more_has_not_the_right_file(tmp_path, monkeypatch, code, raises):
    def fail(_path, _size):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files_host, "sha256_of", fail)
    file = ManifestFile("a", 1, "0" * 64)
    if raises:
        with pytest.raises(PermissionError):
            has_expected_hash(str(tmp_path / "a"), file)
    else:
        assert has_expected_hash(str(tmp_path / "a"), file) is False


def test_only_files_of_the_manifest_stay_in_the_partial_directory(tmp_path):
    state = made(tmp_path, None)
    for name in (".x.part", "original/other", "original/deep/model.safetensors.part"):
        with open(os.path.join(state.partial, name), "w", encoding="ascii"):
            pass
    remove_unlisted_files(state)
    assert contents_of(state.partial) == FILES


def test_right_files_are_linked_again_over_what_has_their_names(tmp_path):
    state = made(tmp_path, FILES)
    right = ModelState(state.manifest, state.directory, state.manifest.files, (), False)
    link_verified_files(right)
    link_verified_files(right)
    assert contents_of(state.partial) == FILES


@pytest.mark.parametrize(("missing", "current", "changed"), [((), True, False), ((), False, True), ((1,), True, True)])
def test_a_missing_file_or_another_stamp_is_a_change(tmp_path, missing, current, changed):
    state = made(tmp_path, None)
    assert ModelState(state.manifest, state.directory, (), missing, current).changed is changed


def test_a_stamp_is_on_the_disk_before_its_name_counts(tmp_path, monkeypatch):
    state, known, _touched = verified(tmp_path)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    write_stamp(state.partial, state.manifest, known)
    assert [os.path.dirname(synced[0]), synced[1]] == [state.partial, state.partial]


def test_a_stamp_is_read_as_it_was_written(tmp_path):
    state, known, _touched = verified(tmp_path)
    write_stamp(state.partial, state.manifest, known)
    stamp = read_stamp(state.partial)
    assert stamp["files"][MODEL]["inode"] == known[MODEL].inode and set(stamp["files"]) == set(FILES)
    for content in ("[1]", "{", "", "\xff"):
        (tmp_path / ".verified.json").write_text(content, encoding="latin-1")
        assert read_stamp(str(tmp_path)) == {}
