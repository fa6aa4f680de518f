# SPDX-License-Identifier: GPL-3.0-or-later
"""Which instances of the role get their adapters while they run, and which ones are restarted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[4]
CONFIG, ENV = ({"path": f"/etc/vllm/chat.{kind}", "restarts": ["chat"], "unit": False} for kind in ("yaml", "env"))
NAMES = ("__vllm_live", "__vllm_changed", "__vllm_rewritten")


def decide(directory, results, stale=()):
    """Return the role's variables after it has written files, for an instance that ran before."""
    plan = {"instance": "chat", "container": None, "image": None, "args": {}}
    facts = {
        "vllm_plan": {"plans": {"chat": plan}, "groups": {}},
        "vllm_host_state": {"stale": list(stale), "installed": ["chat"]},
        "__vllm_written": {"results": results},
    }
    values = "{{ {" + ", ".join(f"'{name}': {name}" for name in NAMES) + "} }}"
    tasks = [{"ansible.builtin.copy": {"dest": f"{directory}/found", "content": values + "\n"}}]
    play = {
        "hosts": "localhost", "connection": "local", "gather_facts": False, "vars": facts, "tasks": tasks,
        "vars_files": [str(TOP / "roles/vllm/vars/main.yml")],
    }  # fmt: skip
    (directory / "play.yml").write_text(json.dumps([play]))
    words = [TOP / ".venv/bin/ansible-playbook", "-i", "localhost,", directory / "play.yml"]
    subprocess.run(words, check=True, cwd=TOP, capture_output=True)
    return json.loads((directory / "found").read_text().replace("'", '"'))


def result(item, changed=True, live=False):
    return {"item": item, "changed": changed, "live": live}


@pytest.mark.parametrize(
    ("results", "stale", "live", "changed"),
    [
        ([result(CONFIG, live=True), result(ENV, changed=False)], [], ["chat"], []),
        ([result(CONFIG, live=True), result(ENV)], [], [], ["chat"]),
        ([result(CONFIG)], [], [], ["chat"]),
        # It runs with older files already: only a restart makes it right.
        ([result(CONFIG, live=True)], ["chat"], [], ["chat"]),
        ([result(CONFIG, changed=False)], [], [], []),
    ],
)
def test_only_a_change_of_adapters_alone_is_taken_over(tmp_path, results, stale, live, changed):
    found = decide(tmp_path, results, stale)
    assert (found["__vllm_live"], found["__vllm_changed"]) == (live, changed)
    # In check mode the state that this run would keep is another one.
    assert found["__vllm_rewritten"] == (["chat"] if any(each["changed"] for each in results) else [])
