# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is taken over answers every module with what it likes: its "Python" is a script that prints one JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
ANSWER = """#!{python}
import sys
sys.stdin.read() if not sys.stdin.isatty() else None
print({answer!r})
"""
CONFIGURED = "[defaults]\ninject_facts_as_vars = false\n"


class Site:
    """An inventory with a host that is taken over, another one, and plays over both."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.answer: dict[str, object] = {"changed": False}
        self.config = TOP / "ansible.cfg"

    def run(self, *plays: dict[str, object], **variables: object) -> str:
        """Return what a run printed, in one line."""
        (self.top / "python").write_text(ANSWER.format(python=sys.executable, answer=json.dumps(self.answer)))
        (self.top / "python").chmod(0o755)
        pythons = {"evil": str(self.top / "python"), "other": sys.executable}
        hosts = {name: {"ansible_python_interpreter": python, **variables} for name, python in pythons.items()}
        everything = {"vars": {"ansible_connection": "local"}, "children": {"inference": {"hosts": hosts}}}
        (self.top / "hosts.json").write_text(json.dumps({"all": everything}))
        defaults = {"hosts": "evil", "gather_facts": False}
        (self.top / "play.yml").write_text(json.dumps([{**defaults, **play} for play in plays]))
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", "-i", self.top / "hosts.json", self.top / "play.yml"],
            env={
                **os.environ, "ANSIBLE_CONFIG": str(self.config), "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"),
                "ANSIBLE_NOCOLOR": "1", "ANSIBLE_HOME": str(self.top / "ansible"),
                "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            },
            cwd=TOP, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        return re.sub(r"\s+", " ", done.stdout + done.stderr)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def show(*names):
    return {"debug": {"msg": " ".join(f"{name}={{{{ {name} | default('none') }}}}" for name in names)}}


def test_no_fact_of_a_host_replaces_a_variable_of_anybody(site):
    """Neither of its own, nor of the host that a task is delegated for, nor of all with run_once."""
    facts = {
        "rollout_check_tasks": ["/evil.yml"],
        "provision_bmc_verify": False,
        "accelerator_detected": {"stack": "x"},
    }
    site.answer = {"changed": False, "ping": "pong", "ansible_facts": facts}
    shown = show("rollout_check_tasks", "provision_bmc_verify", "ansible_facts.accelerator_detected.stack")
    delegated = {"ansible.builtin.ping": {}, "delegate_to": "evil", "delegate_facts": True}
    text = site.run(
        {"tasks": [{"ansible.builtin.ping": {}}, shown]},
        {"hosts": "other", "tasks": [delegated, {**delegated, "run_once": True}, shown]},
        {"hosts": "other", "tasks": [{"baremetal.inference.playbook_options": {}}]},
        rollout_check_tasks="mine", provision_bmc_verify="yes",
    )  # fmt: skip
    answers = re.findall(r"rollout_check_tasks=(\S+) provision_bmc_verify=(\S+) \S+stack=(\w+)", text)
    assert answers == [("mine", "yes", "x"), ("mine", "yes", "none")], text
    assert "failed=0" in text and "failed=1" not in text


@pytest.mark.parametrize("config", ["[defaults]\n", "[defaults]\ninject_facts_as_vars = true\n"])
def test_the_collection_s_plays_keep_facts_apart_whatever_a_site_s_ansible_cfg_says(site, config):
    site.config = site.top / "ansible.cfg"
    site.config.write_text(config)
    site.answer = {"changed": False, "ping": "pong", "ansible_facts": {"rollout_check_tasks": ["/evil.yml"]}}
    selected = "{{ lookup('baremetal.inference.selected_hosts', 'target_hosts', 'inference') }}"
    options = {"baremetal.inference.playbook_options": {}, "delegate_to": "localhost"}
    plays = [
        {"hosts": hosts, "tasks": [{"ansible.builtin.ping": {}}, show("rollout_check_tasks")]}
        for hosts in (selected, "evil")
    ]
    text = site.run(*plays, {"tasks": [options]}, rollout_check_tasks="mine")
    assert re.findall(r"rollout_check_tasks=(\S+)", text) == ["mine"] * 3, text
    assert "inject_facts_as_vars" not in text


def test_an_answer_in_a_loop_replaces_nothing_for_the_next_one_after_a_play_of_somebody_else(site):
    """ansible-core 2.20 keeps what was set when the first play began."""
    site.config = site.top / "ansible.cfg"
    site.config.write_text("[defaults]\n")
    site.answer = {"changed": False, "ping": "pong", "ansible_facts": {"rollout_check_tasks": "evil"}}
    selected = "{{ lookup('baremetal.inference.selected_hosts', 'target_hosts', 'inference') }}"
    each = {"delegate_to": "{{ item }}", "delegate_facts": True, "loop": ["evil", "other"], "register": "__each"}
    asked = {"ansible.builtin.ping": {"data": "{{ rollout_check_tasks }}"}, **each}
    told = {"debug": {"msg": "second={{ __each.results[1].ping }}"}}
    first = {"hosts": "other", "tasks": [{"ansible.builtin.ping": {}}]}
    text = site.run(first, {"hosts": selected, "tasks": [asked, told]}, rollout_check_tasks="mine")
    assert re.findall(r"second=(\S+)", text) == ["mine"] * 2, text


def test_a_play_of_somebody_else_is_warned_once_where_facts_would_replace_variables(site):
    site.config = site.top / "ansible.cfg"
    site.config.write_text("[defaults]\n")
    tasks = [{"baremetal.inference.playbook_options": {}}] * 2
    text = site.run({"hosts": "other", "tasks": tasks})
    # ansible-core 2.18 wraps warnings, at hyphens of a path too.
    warning = f"inject_facts_as_vars: found true ({site.config}), expected false".replace(" ", "")
    assert text.replace(" ", "").count(warning) == 1, text
    assert "failed=0" in text
    site.config.write_text(CONFIGURED)
    assert "inject_facts_as_vars" not in site.run({"hosts": "other", "tasks": tasks})


def test_no_file_of_the_controller_is_read_by_a_name_of_a_host(site):
    """Its operating system is a part of no path: the file beside it would set any variable of the host."""
    (site.top / "Debian_13.yml").write_text("vllm_user: root\n")
    facts = {f"ansible_{name}": f"{site.top}/Debian" for name in ("distribution", "os_family")}
    site.answer = {"changed": False, "ansible_facts": {**facts, "ansible_distribution_major_version": "13"}}
    roles = {"container_runtime": "load_variables", "vllm": "libraries", "monitoring": "preflight"}
    tasks = [
        {
            "block": [{"ansible.builtin.include_role": {"name": f"baremetal.inference.{role}", "tasks_from": file}}],
            "rescue": [{"debug": {"msg": "refused"}}],
        }
        for role, file in roles.items()
    ]
    text = site.run({"tasks": [*tasks, show("vllm_user")]}, vllm_host_state={"missing_libraries": []})
    assert "vllm_user=none" in text, text
    assert "the role container_runtime does not support" in text
    assert "their packages are known for Debian 12, Debian 13 only" in text
    assert "knows no package of the node exporter for" in text


def test_no_host_names_the_files_that_are_pushed_to_it(site):
    """The controller has a key beside the weights that it pushes."""
    (site.top / "carried").mkdir()
    (site.top / "id_ed25519").write_text("secret")
    wanted = {"path": str(site.top), "partial": str(site.top / "loot"), "files": {"id_ed25519": len("secret")}}
    job = {"rc": 0, "ansible_job_id": "1", "started": 1, "finished": 1}
    site.answer = {"changed": False, "unsourced": [wanted], "models": [], **job}
    sources = [f"controller:{site.top}/carried"]
    options = {"models": ["openai/gpt-oss-20b"], "root": str(site.top / "models"), "sources": sources}
    text = site.run({"tasks": [{"baremetal.inference.weights": options}]})
    assert f"the host's answer names '{site.top}', which is no model of this task" in text, text
    assert not (site.top / "loot").exists()
