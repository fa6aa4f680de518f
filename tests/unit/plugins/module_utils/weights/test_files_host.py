# SPDX-License-Identifier: GPL-3.0-or-later
"""Publication of a model's directory: what is on the disk at each step, and what a kill leaves behind."""

from __future__ import annotations

import hashlib
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common import files_host as common
from ansible_collections.baremetal.inference.plugins.module_utils.weights import files_host
from ansible_collections.baremetal.inference.plugins.module_utils.weights.files_host import (
    ModelState,
    link_verified_files,
    publish_model,
)
from ansible_collections.baremetal.inference.plugins.module_utils.weights.manifest import Manifest, ManifestFile

from tests.fakes.kills import killed_at

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
def test_a_kill_at_any_step_leaves_the_old_directory_or_the_new_one_or_the_whole_partial_one(tmp_path, before):
    ways = set()
    for call in range(1, 400):
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
