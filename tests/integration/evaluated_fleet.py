# SPDX-License-Identifier: GPL-3.0-or-later
"""Two hosts that are evaluated, both this machine; stand-ins for systemd and for the steps around a rollout's gate.

Check, gate and way back are the tasks of the role rollout, the evaluation is that of the playbook.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import yaml

from tests.fakes.systemd import FakeInstances, FakeSystemd
from tests.fakes.vllm import MODEL

TOP = Path(__file__).resolve().parents[2]
TASKS = TOP / "roles/rollout/tasks"
UNIT = {
    "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success", "NRestarts": "0",
    "ExecMainCode": "0", "ExecMainStatus": "0", "MainPID": "42", "InvocationID": "1" * 32,
}  # fmt: skip
REASON = "{{ ansible_failed_result.msg }}"
KEY = "sk-planted-0123456789"


def step(name):
    """Return a task file that notes a step of the host."""
    line = f"{{{{ inventory_hostname }}}} {name}"
    command = f"echo '{line}' >> {{{{ steps_file }}}}"
    return [{"name": f"Note {name}", "ansible.builtin.shell": command, "changed_when": True}]


def tasks_of(name):
    return yaml.safe_load((TASKS / name).read_text())


def without_journal(tasks):
    """Return the tasks of a file without those that read or write the journal of a rollout."""
    kept = []
    for task in tasks:
        if not {"baremetal.inference.rollout_journal", "baremetal.inference.rollout_orders"}.intersection(task):
            nested = {key: without_journal(task[key]) for key in ("block", "rescue") if key in task}
            kept.append({**task, **nested})
    return kept


class Fleet:
    """Two hosts, both this machine, that serve the same instance: the server of MODEL at this port, with this key."""

    def __init__(self, directory, port):
        self.directory, self.steps = directory, directory / "steps"
        files = FakeInstances(directory / "root")
        files.template(key=KEY)
        files.write("/etc/vllm/chat.yaml", f"host: 127.0.0.1\nport: {port}\nserved-model-name:\n- {MODEL}\n")
        systemd = FakeSystemd(directory / "systemd.json")
        systemd.install(directory / "bin")
        systemd.change(units={"vllm@chat.service": {**UNIT, "started": time.time() + 1}})
        (directory / "bin/journalctl").write_text("#!/bin/sh\n")
        (directory / "bin/journalctl").chmod(0o755)
        self._write_role()
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
        hosts = {"gpu-1": local, "gpu-2": local}
        (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))

    def _write_role(self):
        """Write the role rollout, without its journal and with steps that only note their names."""
        role = self.directory / "roles/rollout_of_test/tasks"
        role.mkdir(parents=True)
        gate = [task for task in tasks_of("apply.yml") if "rollout_gate_tasks" in str(task.get("loop"))]
        check = [task for task in tasks_of("collect_changes.yml") if "rollout_check_tasks" in str(task.get("loop"))]
        assert len(gate) == 1 and len(check) == 2
        written = {
            "update_host": without_journal(tasks_of("update_host.yml")),
            "apply": [*step("apply"), *gate],
            "collect_changes": check,
            "drain": step("drain"),
            "return_to_service": step("return"),
            "undo": [*step("undo"), {"name": "Fail", "ansible.builtin.fail": {"msg": REASON}}],
        }
        for name, tasks in written.items():
            (role / f"{name}.yml").write_text(yaml.safe_dump(tasks, sort_keys=False))

    def play(self, tasks, hosts="gpu-1,gpu-2", **variables):
        """Run the included task files on hosts; return the status and the output in one line."""
        root, config = str(self.directory / "root"), str(self.directory / "root/etc/vllm")
        play = {
            "name": "Play", "hosts": hosts, "gather_facts": False, "serial": 1, "tasks": tasks,
            "module_defaults": {
                "baremetal.inference.instance_slot": {"root": root},
                "baremetal.inference.evaluation_run": {"root": root, "config_dir": config},
                "baremetal.inference.endpoint": {"config_dir": config},
            },
        }  # fmt: skip
        (self.directory / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
        given = {
            "steps_file": str(self.steps), "evaluate_environment": str(self.directory / "lm-eval"),
            "__rollout_turn": {"mark": {"kind": "change"}}, "__rollout_has_changed": True, **variables,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "ansible", "playbook", str(self.directory / "play.yml"), "-i",
             str(self.directory / "hosts.json"), "-e", json.dumps(given)],
            cwd=self.directory, check=False, capture_output=True, text=True,
            env={
                **os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_LOCAL_TEMP": str(self.directory / "tmp"),
                "ANSIBLE_ROLES_PATH": str(self.directory / "roles"),
                "ANSIBLE_COLLECTIONS_PATH": str(TOP / ".collections"),
                "PATH": f"{self.directory}/bin:{os.environ['PATH']}",
            },
        )  # fmt: skip
        assert KEY not in done.stdout + done.stderr
        return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)

    def roll_out(self, hosts="gpu-1,gpu-2", **variables):
        """Check the change, then update one host after the other."""
        include = {"name": "rollout_of_test"}
        steps = [{"ansible.builtin.include_role": {**include, "tasks_from": name}}
                 for name in ("collect_changes", "update_host")]  # fmt: skip
        gate = {
            "rollout_check_tasks": [f"{TOP}/playbooks/tasks/evaluate_check.yml"],
            "rollout_gate_tasks": [f"{TOP}/playbooks/tasks/evaluate.yml"],
            "evaluate_dir": str(self.directory / "after"),
            "evaluate_compare": str(self.directory / "before"),
        }
        return self.play(steps, hosts, **{**gate, **variables})
