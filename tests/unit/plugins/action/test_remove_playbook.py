# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/remove.yml as a whole, over a tree of files in place of a host."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.systemd import FakeInstances, FakeSystemd

TOP = Path(__file__).resolve().parents[4]
VENV = "0.32.0-cpu-0123456789ab"


@pytest.fixture
def there(tmp_path):
    """A host with an instance, its weights and its environment."""
    FakeSystemd(tmp_path / "systemd.json").install(tmp_path / "bin")
    there = FakeInstances(tmp_path / "root")
    there.template("chat", venv=VENV)
    return there


@pytest.fixture
def remove(tmp_path, there):
    """Run the playbook; return its exit status, what it says, and how many tasks changed something."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    local["__remove_root"] = str(there.root)
    # Both have the same files.
    hosts = {"inference": {"hosts": {"here": local, "beside": local}}}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"children": hosts}}))

    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"

    def remove(*options, **variables):
        given = {
            "vllm_user": "nobody-has-this-name",
            "ansible_become": False,
            **variables,
        }
        words = [
            sys.executable,
            "-m",
            "ansible",
            "playbook",
            "playbooks/remove.yml",
            "-i",
            str(tmp_path / "hosts.json"),
        ]
        done = subprocess.run(
            [*words, "-l", "here", "-e", json.dumps(given), *options],
            cwd=TOP, check=False, capture_output=True, text=True,
            env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp"),
                 "ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "PATH": path},
        )  # fmt: skip
        said = " ".join((done.stdout + done.stderr).split())
        found = re.search(r"changed=(\d+)", said)
        return done.returncode, said, int(found[1]) if found else None

    return remove


def test_a_part_of_an_instance_over_several_hosts_is_refused(there, remove):
    there.write("/etc/vllm/chat.group.json", json.dumps({"hosts": ["beside", "gone", "here"], "role": "worker"}))
    rc, said, _changed = remove("--check", remove_instance="chat")
    assert rc and "chat is one instance over beside, gone, here, and beside is not in this run" in said, said
    rc, said, _changed = remove("-l", "here,beside", "--check", remove_instance="chat")
    assert rc == 0 and "would remove: instance chat vllm@chat.service (" in said, said


def test_check_mode_lists_a_run_removes_and_a_second_run_changes_nothing(there, remove):
    before = there.picture()
    rc, said, changed = remove("--check", remove_instance="chat")
    assert (rc, changed) == (0, 1), said
    assert "would remove: instance chat vllm@chat.service (" in said
    assert there.picture() == before
    rc, said, changed = remove(remove_instance="chat")
    assert (rc, changed) == (0, 1), said
    assert "removed: instance chat vllm@chat.service (" in said and "freed: " in said
    assert list(there.picture()) == ["etc/systemd/system/vllm@.service"]
    rc, said, changed = remove(remove_instance="chat")
    assert (rc, changed) == (0, 0), said
    assert "instance 'chat' is not on this host; the host has none" in said.replace("''", "'")


@pytest.mark.parametrize("names", ["chatt", "chat-2", "other", "chatt,chat-2"])
def test_an_instance_that_no_host_has_or_declares_is_an_error(there, remove, names):
    before = there.picture()
    for words in ([], ["-l", "here,beside"]):
        rc, said, _changed = remove(*words, remove_instance=f"chat,{names}")
        # As ansible-core 2.18 writes a quote.
        said = said.replace("''", "'")
        for name in names.split(","):
            nearest = "" if name == "other" else "nearest: 'chat'"
            assert rc and f"instance '{name}' is not on this host; {nearest}" in said, said
        assert rc and "no other host of this run has or declares it. Nothing was removed" in said, said
        assert there.picture() == before


def test_a_name_like_one_of_another_host_is_that_of_its_own_host(there, remove):
    """The other host has no instance, or one whose name has the same letters."""
    for others in ([], ["chta"]):
        other = FakeInstances(there.root.parent / f"root{len(others)}")
        for name in others:
            other.template(name, venv=VENV)
        (there.root.parent / "host_vars").mkdir(exist_ok=True)
        (there.root.parent / "host_vars/beside.json").write_text(json.dumps({"__remove_root": str(other.root)}))
        rc, said, _changed = remove("-l", "here,beside", "--check", remove_instance="chta")
        if others:
            assert rc == 0 and "beside: would remove: instance chta vllm@chta.service (" in said, said
        else:
            said = said.replace("''", "'")
            assert rc and "instance 'chta' is not on this host; nearest: 'chat', and no other host" in said, said


# Variable, value, what is gone from the host afterwards, and what both lists name.
KINDS = [
    ("remove_model", "example/tiny", "srv/models", "/srv/models/example/tiny"),
    ("remove_environment", "0.32.0", "opt/vllm/", f"/opt/vllm/{VENV}"),
    ("remove_everything", True, "", "instance chat vllm@chat.service ("),
]


@pytest.mark.long
@pytest.mark.parametrize(("variable", "value", "gone", "named"), KINDS, ids=[kind for kind, *_rest in KINDS])
def test_each_kind_is_listed_in_check_mode_and_goes_once(there, remove, variable, value, gone, named):
    if variable != "remove_everything":
        # Without an instance that uses them.
        shutil.rmtree(there.root)
        there.weights("a" * 40)
        there.venv(VENV)
    before = there.picture()
    rc, said, changed = remove("--check", **{variable: value})
    assert (rc, changed) == (0, 1) and "would remove: " in said and named in said, said
    assert there.picture() == before
    rc, said, changed = remove(**{variable: value})
    assert (rc, changed) == (0, 1) and "removed: " in said and named in said, said
    kept = [path for path in before if not path.startswith(gone)]
    assert list(there.picture()) == kept
    rc, said, changed = remove(**{variable: value})
    assert (rc, changed) == (0, 0), said


def test_what_is_in_use_ends_the_run_before_anything_changes(there, remove):
    before = there.picture()
    rc, said, _changed = remove(remove_environment="0.32.0")
    assert rc and "environment 0.32.0: instance chat uses it; remove or change that first" in said
    assert there.picture() == before


@pytest.mark.long
def test_what_is_still_declared_ends_the_run_before_anything_changes(there, remove):
    before = there.picture()
    rc, said, _changed = remove(remove_everything=True, vllm_instances={"chat": {}})
    assert rc and "chat: vllm_instances still declares it for this host" in said
    assert there.picture() == before
