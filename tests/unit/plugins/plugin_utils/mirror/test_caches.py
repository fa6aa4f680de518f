# SPDX-License-Identifier: GPL-3.0-or-later
"""A host gives an archive for its own plan only, and chooses no name on the controller."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.inference.plugins.module_utils.slots.caches import (
    CacheError,
    find_archive,
    identity_of,
    key_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.mirror import caches
from ansible_collections.baremetal.inference.plugins.plugin_utils.mirror.caches import keep_archive

TOP = Path(__file__).resolve().parents[5]
PLAN = {
    "instance": "chat", "vllm_version": "0.33.0", "model": "m", "revision": "r", "args": {}, "env": {}, "chips": [0],
    "accelerator": "h200", "venv": {"path": "/opt/vllm/0.33.0-cuda-abc"}, "image": None, "container": None,
}  # fmt: skip
IN_IMAGE = {**PLAN, "venv": None, "image": "vllm/vllm-openai:v0.33.0"}
PACKED = {"made": True, "software": "0.33.0-cuda-abc", "host": {"driver": "nvidia 580"}, "unpacked": 7}
KEY = key_of(identity_of(PLAN, "0.33.0-cuda-abc", PACKED["host"]))


def keep(directory, name="gpu-1", content=b"code", plan=None, **words):
    """Keep an archive of a host that answers these words."""
    fetched = directory / f".{name}.partial"
    fetched.write_bytes(content)
    try:
        return keep_archive(str(directory), name, plan or PLAN, {**PACKED, **words}, str(fetched))
    finally:
        assert not os.path.lexists(fetched)


def names_in(directory):
    return sorted(path.name for path in directory.iterdir() if path.name != ".lock")


def test_an_archive_has_the_name_of_its_key_and_a_manifest_of_the_controller(tmp_path):
    assert keep(tmp_path) == (f"{KEY}.tar.gz", "")
    assert names_in(tmp_path) == [f"{KEY}.json", f"{KEY}.tar.gz"]
    text = (tmp_path / f"{KEY}.json").read_text()
    found = find_archive([text], KEY)
    assert (found.size, found.sha256, found.unpacked) == (4, sha256(b"code").hexdigest(), 7)
    assert json.loads(text)["made_by"] == "gpu-1" and json.loads(text)["made_from"]["host"] == PACKED["host"]


def test_a_host_chooses_no_name(tmp_path):
    """It named the fetched files: ansible.cfg, and the manifest of any key."""
    lies = {"files": ["/tmp/ansible.cfg"], "key": "0" * 32, "instance": "code", "made_from": {}, "sha256": "0" * 64}
    assert keep(tmp_path, **lies) == (f"{KEY}.tar.gz", "")
    assert names_in(tmp_path) == [f"{KEY}.json", f"{KEY}.tar.gz"]


def test_the_software_of_a_plan_is_not_the_host_s_word_but_the_id_of_an_image_is(tmp_path):
    assert keep(tmp_path, software="other") == (f"{KEY}.tar.gz", "")
    name, _warning = keep(tmp_path, plan=IN_IMAGE, software="sha256:1")
    assert name == f"{key_of(identity_of(IN_IMAGE, 'sha256:1', PACKED['host']))}.tar.gz"


def test_no_host_replaces_the_archive_of_another_one(tmp_path):
    keep(tmp_path)
    before = (tmp_path / f"{KEY}.json").read_text()
    _name, warning = keep(tmp_path, "gpu-2", b"evil")
    assert "gpu-2: chat: " in warning and "that gpu-1 made, which stays" in warning
    assert (tmp_path / f"{KEY}.json").read_text() == before and (tmp_path / f"{KEY}.tar.gz").read_bytes() == b"code"
    # The same host makes it again.
    assert keep(tmp_path, "gpu-1", b"later")[1] == "" and (tmp_path / f"{KEY}.tar.gz").read_bytes() == b"later"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"made_by": 7}', "[" * 100_000])
def test_an_archive_of_an_unknown_host_stays_too(tmp_path, text):
    (tmp_path / f"{KEY}.json").write_text(text)
    (tmp_path / f"{KEY}.tar.gz").write_bytes(b"kept")
    assert "that an unknown host made" in keep(tmp_path)[1]
    assert (tmp_path / f"{KEY}.tar.gz").read_bytes() == b"kept"


def test_an_archive_whose_manifest_has_no_room_leaves_what_was_there(tmp_path, monkeypatch):
    def full(*_words):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(CacheError, match="No space left on device"):
        patch.setattr(caches, "publish", full)
        keep(tmp_path)
    assert names_in(tmp_path) == []
    keep(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(CacheError):
        patch.setattr(caches, "publish", full)
        keep(tmp_path, content=b"newer")
    assert (tmp_path / f"{KEY}.tar.gz").read_bytes() == b"code"


def test_a_manifest_whose_archive_was_moved_away_keeps_none_out(tmp_path):
    """Release 0.17.0 wrote manifests without the host."""
    (tmp_path / f"{KEY}.json").write_text("{}")
    assert keep(tmp_path)[1] == "" and '"made_by": "gpu-1"' in (tmp_path / f"{KEY}.json").read_text()


ODD = {
    "unpacked": (None, 0, -1, True, "7", 1 << 60, [7]),
    "host": (None, [], "x", {"driver": 7}, {"driver": "x" * 1000}, {str(number): "x" for number in range(99)}),
    "software": (None, "x" * 1000),
    "content": (b"",),
}


@pytest.mark.parametrize("words", [{name: value} for name, values in ODD.items() for value in values])
def test_an_odd_answer_of_a_host_is_one_sentence_and_leaves_nothing(tmp_path, words):
    with pytest.raises(CacheError, match=r"^gpu-1: chat: "):
        keep(tmp_path, plan=IN_IMAGE, **words)
    assert names_in(tmp_path) == []


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(CacheError, match=r"^gpu-1: chat: .*No such file"):
        keep_archive(str(tmp_path), "gpu-1", PLAN, PACKED, str(tmp_path / "nothing"))


@pytest.mark.slow
def test_the_playbook_fetches_by_names_of_its_own_and_computes_the_key_of_the_host(tmp_path):
    plan = {**PLAN, "args": {"a": 0.9, "b": {"c": [True, None, "x"]}, "d": 64}, "env": {"X": "1"}}
    (tmp_path / "site").mkdir()
    (tmp_path / "host").mkdir()
    (tmp_path / "host/chat.tar.gz").write_bytes(b"code")
    packed = {**PACKED, "files": ["/etc/hostname"], "key": "0" * 32}
    given = {"caches_dir": str(tmp_path / "site"), "vllm_plan": {"plans": {"chat": plan}}}
    given["__caches_packed"] = {"results": [packed]}
    (tmp_path / "vars.json").write_text(json.dumps({**given, "ansible_become": False}))
    text = (TOP / "playbooks/caches.yml").read_text()
    text = text.replace("/var/lib/baremetal-inference/caches", str(tmp_path / "host"))
    tasks = yaml.safe_load(text)[0]["tasks"][-3:]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([{**play, "vars_files": [str(tmp_path / "vars.json")]}]))
    words = [TOP / ".venv/bin/ansible-playbook", "-i", "localhost,", tmp_path / "play.yml"]
    done = subprocess.run(words, check=False, cwd=TOP, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    key = key_of(identity_of(plan, "0.33.0-cuda-abc", PACKED["host"]))
    assert names_in(tmp_path / "site") == [f"{key}.json", f"{key}.tar.gz"]
    assert names_in(tmp_path / "host") == []
