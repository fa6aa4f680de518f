# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances differ from what the role would write."""

from __future__ import annotations

import grp
import hashlib
import os
import pwd

import pytest

from tests.fakes.wheelhouse import run_module

TEXT = "max-num-seqs: 8\n"


@pytest.fixture
def host(tmp_path):
    """Return a function that compares a file and a link of two instances, as they are or as arguments say."""
    path, state = tmp_path / "chat.yaml", tmp_path / "state"
    path.write_text(TEXT)
    path.chmod(0o640)
    (state / "chat").mkdir(parents=True)
    (state / "chat" / "model").symlink_to("/srv/models/a")

    def compare(text=TEXT, link="/srv/models/a", **attributes):
        entry = {
            "path": str(path),
            "mode": "0640",
            "owner": pwd.getpwuid(os.getuid()).pw_name,
            "group": grp.getgrgid(os.getgid()).gr_name,
            "restarts": ["chat", "second"],
            **attributes,
        }
        digests = {entry["path"]: hashlib.sha256(text.encode()).hexdigest()}
        found = run_module(
            "instance_changes_info", files=[entry], digests=digests, links={"chat": link}, state_dir=str(state)
        )
        assert not found["changed"], found
        return found["changes"]

    return compare


def test_what_is_the_same_does_not_change(host):
    assert host() == {}


def test_another_text_changes_every_instance_that_it_starts(host, tmp_path):
    path = str(tmp_path / "chat.yaml")
    assert host(text="max-num-seqs: 9\n") == {"chat": [path], "second": [path]}


@pytest.mark.parametrize("attributes", [{"mode": "0600"}, {"owner": "nobody"}, {"group": "nogroup"}])
def test_another_mode_or_owner_is_a_change(host, attributes):
    assert set(host(**attributes)) == {"chat", "second"}


def test_a_file_that_is_not_there_is_a_change(host, tmp_path):
    (tmp_path / "chat.yaml").unlink()
    assert set(host()) == {"chat", "second"}


def test_other_weights_change_the_instance(host, tmp_path):
    assert host(link="/srv/models/b") == {"chat": [str(tmp_path / "state" / "chat" / "model")]}


def test_the_states_of_the_host_are_returned_on_request(tmp_path):
    found = run_module("instance_changes_info", files=[], states=True)
    assert found["instances"] == run_module("instance_slot")["instances"]
    assert "turn" in found
    assert "turn" not in run_module("instance_changes_info", files=[])
