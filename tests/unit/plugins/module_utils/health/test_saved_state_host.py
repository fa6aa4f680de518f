# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.health.ledger import Ledger, Mark
from ansible_collections.baremetal.inference.plugins.module_utils.health.saved_state_host import SavedState
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.faults import BY_BOOT

NEWEST = '{"boot": "boot", "record": 1, "newest": "x", "ledger": {"schema": 1, "marks": [], "returns": {}}}'


@pytest.fixture
def ledger():
    found = Ledger()
    found.marks[("nvidia xid 79", "0000:5d:00.0", "chat")] = Mark(
        "nvidia xid 79", "0000:5d:00.0", "chat", "isolate_host", BY_BOOT, "fell off the bus", 5.0, "boot", "run"
    )
    return found


def test_what_was_saved_is_restored(tmp_path, ledger):
    SavedState(str(tmp_path), "boot").save(ledger, 41, due=True)
    state = SavedState(str(tmp_path), "boot")
    restored, record = state.restore()
    assert (restored.document(), record, state.damage) == (ledger.document(), 41, "")


def test_the_newest_error_record_is_that_of_this_boot(tmp_path, ledger):
    first = SavedState(str(tmp_path), "boot")
    first.newest = 962102713.0
    first.save(ledger, 41, due=True)
    for boot, newest in (("boot", 962102713.0), ("next boot", 0.0)):
        state = SavedState(str(tmp_path), boot)
        state.restore()
        assert state.newest == newest


def test_the_state_of_an_older_release_has_no_error_record(tmp_path, ledger):
    text = json.dumps({"boot": "boot", "record": 4, "ledger": ledger.document()})
    (tmp_path / "state.json").write_text(text)
    state = SavedState(str(tmp_path), "boot")
    assert (state.restore()[1], state.newest, state.damage) == (4, 0.0, "")


def test_records_of_another_boot_are_read_from_the_first(tmp_path, ledger):
    SavedState(str(tmp_path), "boot").save(ledger, 41, due=True)
    restored, record = SavedState(str(tmp_path), "next boot").restore()
    assert (restored.document(), record) == (ledger.document(), -1)


@pytest.mark.parametrize("text", ["{", "[]", '{"boot": "boot", "record": "x", "ledger": {}}', NEWEST])
def test_a_damaged_file_is_moved_aside(tmp_path, text):
    state = SavedState(str(tmp_path), "boot")
    (tmp_path / "state.json").write_text(text)
    restored, record = state.restore()
    assert (restored.document(), record) == (Ledger().document(), -1)
    assert state.damage
    assert os.listdir(tmp_path) == ["state.json.damaged"]


def test_only_what_changed_or_is_due_is_written(tmp_path, ledger):
    state, path = SavedState(str(tmp_path), "boot"), tmp_path / "state.json"
    state.save(ledger, 1, due=False)
    state.save(ledger, 2, due=False)
    assert json.loads(path.read_text())["record"] == 1
    state.save(ledger, 3, due=True)
    assert json.loads(path.read_text())["record"] == 3
    ledger.marks.clear()
    state.save(ledger, 4, due=False)
    assert json.loads(path.read_text())["record"] == 4
