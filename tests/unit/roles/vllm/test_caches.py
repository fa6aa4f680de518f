# SPDX-License-Identifier: GPL-3.0-or-later
"""The role gives a new instance the archive that fits, and goes on without one that is damaged."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.slots.caches import (
    Archive,
    identity_of,
    key_of,
)
from ansible_collections.baremetal.inference.plugins.module_utils.slots.caches_host import read_host, write_archive

TOP = Path(__file__).resolve().parents[4]
PLAN = {
    "instance": "chat", "vllm_version": "0.33.0", "model": "m", "revision": "r", "args": {},
    "env": {}, "chips": [0], "accelerator": "cpu", "venv": {"path": "/opt/vllm/0.33.0-cpu-abc"}, "image": None,
    "container": None,
}  # fmt: skip


@pytest.fixture
def site(tmp_path):
    """A controller's directory with one manifest, and a source with its archive."""
    graph = tmp_path / "first/vllm/graph.py"
    graph.parent.mkdir(parents=True)
    graph.write_text("compiled")
    identity = identity_of(PLAN, "0.33.0-cpu-abc", read_host())
    for name in ("source", "manifests"):
        (tmp_path / name).mkdir()
    archive = tmp_path / f"source/{key_of(identity)}.tar.gz"
    with archive.open("wb") as file:
        unpacked = write_archive(str(tmp_path / "first"), file)
    made = Archive(key_of(identity), archive.stat().st_size, sha256(archive.read_bytes()).hexdigest(), unpacked)
    (tmp_path / f"manifests/{made.key}.json").write_text(made.manifest(identity))
    return tmp_path, archive


def run(directory):
    user = pwd.getpwuid(os.geteuid()).pw_name
    facts = {
        "vllm_user": user, "vllm_caches_dir": str(directory / "manifests"), "vllm_wheel_ca_file": "",
        "vllm_caches_source": str(directory / "source"), "vllm_host_state": {"container": {}},
        "__vllm_cache_dir": str(directory / "cache"), "ansible_become": False,
    }  # fmt: skip
    (directory / "plans.json").write_text(json.dumps({"__vllm_plans": {"chat": PLAN}}))
    tasks = [{"ansible.builtin.import_tasks": str(TOP / "roles/vllm/tasks/caches.yml")}]
    work = {"baremetal.inference.instance_cache": {"work_dir": str(directory / "work")}}
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False, "vars": facts, "tasks": tasks,
        "vars_files": [str(directory / "plans.json")], "module_defaults": work,
    }  # fmt: skip
    (directory / "play.yml").write_text(json.dumps([play]))
    words = [TOP / ".venv/bin/ansible-playbook", "-i", "localhost,", directory / "play.yml"]
    # Of a unit that has not started yet.
    (directory / "systemctl").write_text("#!/bin/sh\necho ActiveState=inactive\n")
    (directory / "systemctl").chmod(0o755)
    env = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    done = subprocess.run(words, check=False, cwd=TOP, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_new_instance_starts_with_what_an_equal_host_has_compiled(site):
    directory, _archive = site
    assert "changed=1" in run(directory)
    assert (directory / "cache/chat/vllm/graph.py").read_text() == "compiled"
    assert "changed=0" in run(directory)


@pytest.mark.slow
def test_a_damaged_archive_is_a_warning(site):
    directory, archive = site
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    said = " ".join(run(directory).split())
    assert "changed=0" in said and "chat: its caches were not seeded" in said
    assert not (directory / "cache/chat/vllm").exists()
