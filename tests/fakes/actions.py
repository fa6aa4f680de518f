# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the tasks of a play with actions of the collection: by ansible-playbook, or without it in this process.

A host in a play takes two seconds, for Ansible packs each module and starts an interpreter for it.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Mapping
from unittest import mock

from ansible.errors import AnsibleActionFail
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.templates import as_template

from tests.fakes.wheelhouse import ROOT, run_module

ACTIONS = Path(__file__).parent / "ansible_actions"
# What a play of these tests ends with: what became of the tasks of its block.
OUTCOME = """\
      rescue:
        - ansible.builtin.set_fact:
            failure: "{{ ansible_failed_result.msg }}"
    - keep_result:
        value: {failure: "{{ failure | default(none) }}", planned: "{{ none if failure is defined else planned }}"}
        dest: "{{ tree }}/result.json"
"""


class Task:
    """As much of a task as an action reads before it connects."""

    async_val = 0
    check_mode = False
    diff = False
    environment = None

    def __init__(self, action: str, args: Mapping[str, Any]) -> None:
        self.action = action
        self.args = args

    def get_path(self) -> str:
        """Return where a play of somebody else has the task."""
        return "/home/alice/play.yml:1"


def run_action(name: str, options: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Run an action of the collection in this process, and its modules in check mode in forks of it.

    Raises AnsibleActionFail.
    """
    module = importlib.import_module(f"ansible_collections.baremetal.inference.plugins.action.{name}")
    nowhere = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = module.ActionModule(Task(f"baremetal.inference.{name}", options), nowhere, None, None, None, None)

    def execute(module_name: str = name, module_args: Any = None, task_vars: Any = None) -> dict[str, Any]:
        return run_module(module_name.rpartition(".")[2], **module_args, _ansible_check_mode=True)

    with mock.patch.object(action, "_execute_module", execute):
        return action.run(task_vars=dict(variables))


def run_play(play: str, host: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Run the tasks in the block of a play in this process.

    Returns the message of the task that failed as ``failure`` and what was registered as ``planned``, None for none.
    """
    (loaded,) = DataLoader().load(as_template(play))
    known = {"inventory_hostname": host, **variables}
    with mock.patch.dict(os.environ, Templar(DataLoader(), known).template(loaded["environment"])):
        for task in loaded["tasks"][0]["block"]:
            ((name, options),) = ((key, value) for key, value in task.items() if key.startswith("baremetal.inference."))
            try:
                options = Templar(DataLoader(), known).template(options)
                result = run_action(name.rpartition(".")[2], options, known)
            except AnsibleActionFail as exc:
                return {"failure": str(exc), "planned": None}
            assert not result.get("failed"), result
            known["ansible_facts"] = {**known.get("ansible_facts", {}), **result.get("ansible_facts", {})}
            # Ansible keeps no empty list of warnings, and whether the task failed.
            result = {key: value for key, value in result.items() if key != "warnings" or value}
            known[task.get("register", "_")] = {**result, "failed": False}
    return {"failure": None, "planned": json.loads(json.dumps(known["planned"]))}


def play_by_ansible(directory: Path, play: str, hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Run a play by ansible-playbook in check mode over hosts that are trees of files; return the same for each."""
    connection = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": connection}}))
    (directory / "play.yml").write_text(play + OUTCOME)
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", directory / "hosts.json", "--forks=4", "--check", directory / "play.yml"],
        cwd=ROOT,
        env={
            **os.environ,
            "ANSIBLE_ACTION_PLUGINS": str(ACTIONS),
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections"),
            "ANSIBLE_NOCOLOR": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: read_result(Path(host["tree"], "result.json")) for name, host in hosts.items()}


def read_result(file: Path) -> dict[str, Any]:
    """Return what a play kept.

    ansible-core 2.18 turns none of a template into an empty text, and each plan has its warnings, even none.
    """
    kept = json.loads(file.read_text())
    if isinstance(kept.get("planned"), dict) and kept["planned"].get("warnings") == []:
        del kept["planned"]["warnings"]
    return {key: None if value == "" else value for key, value in kept.items()}
