# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout with an evaluation as its gate (docs/operate/evaluate.md): a loss of 5 points ends at the first host.

Check, gate and way back are the tasks of the role rollout, the evaluation is that of the playbook. The server,
systemd, lm-eval and the steps around the gate are stand-ins; the steps write their names into a file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from tests.fakes.evaluations import install_lm_eval
from tests.fakes.systemd import FakeInstances, FakeSystemd
from tests.fakes.vllm import MODEL, chat_body, fake_vllm

TOP = Path(__file__).resolve().parents[2]
TASKS = TOP / "roles/rollout/tasks"
MADE = {row["question"]: row for row in map(json.loads, (TOP / "catalog/evaluation/made.jsonl").open())}
UNIT = {
    "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "Result": "success", "NRestarts": "0",
    "ExecMainCode": "0", "ExecMainStatus": "0", "MainPID": "42", "InvocationID": "1" * 32,
}  # fmt: skip
REASON = "{{ ansible_failed_result.msg }}"
RIGHT = 800
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


@pytest.fixture(scope="module")
def place():
    """A directory that the user nobody can reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


class Fleet:
    """Two hosts, both this machine, that serve the same instance; ``changed`` hosts answer as the new state does."""

    def __init__(self, directory, server):
        self.directory, self.server = directory, server
        self.lost = self.gained = 0
        self.steps = directory / "steps"
        files = FakeInstances(directory / "root")
        files.template(key=KEY)
        port = server.url.rpartition(":")[2]
        files.write("/etc/vllm/chat.yaml", f"host: 127.0.0.1\nport: {port}\nserved-model-name:\n- {MODEL}\n")
        systemd = FakeSystemd(directory / "systemd.json")
        systemd.install(directory / "bin")
        systemd.change(units={"vllm@chat.service": {**UNIT, "started": time.time() + 1}})
        (directory / "bin/journalctl").write_text("#!/bin/sh\n")
        (directory / "bin/journalctl").chmod(0o755)
        install_lm_eval(directory / "lm-eval")
        self._write_role()
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "ansible_become": False}
        hosts = {"gpu-1": local, "gpu-2": local}
        (directory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        server.api_key = KEY
        server.behaviour["/v1/chat/completions"] = self.answer

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

    def answer(self, handler):
        """Answer 800 of the 1000 questions, and with the new state as many more and fewer as are planted."""
        row = MADE[handler.payload["messages"][-1]["content"]]
        number = int(row["id"].rpartition("-")[2]) - 1
        right = number < RIGHT
        if self.steps.exists() and "apply" in self.steps.read_text():
            right = self.lost <= number < RIGHT + self.gained
        handler.send_json(chat_body(f"It is {row['answer'] if right else 'unknown'}."))

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
            "evaluate_tasks": "made", "evaluate_samples": 1000, "__rollout_turn": {"mark": {"kind": "change"}},
            "__rollout_has_changed": True, **variables,
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


@pytest.fixture(scope="module")
def evaluated(place):
    """The hosts after an evaluation of what they serve."""
    with fake_vllm() as server:
        found = Fleet(place, server)
        asked = [{"ansible.builtin.include_tasks": f"{TOP}/playbooks/tasks/evaluate.yml"}]
        rc, output = found.play(asked, evaluate_dir=str(place / "before"))
        assert rc == 0, output
        yield found


@pytest.fixture
def fleet(evaluated, place):
    evaluated.lost = evaluated.gained = 0
    evaluated.steps.unlink(missing_ok=True)
    shutil.rmtree(place / "after", ignore_errors=True)
    return evaluated


def steps(fleet):
    return fleet.steps.read_text().splitlines() if fleet.steps.exists() else []


def test_a_planted_loss_of_5_points_restores_the_first_host_and_reaches_no_other(fleet, place):
    fleet.lost, fleet.gained = 60, 10
    rc, output = fleet.roll_out()
    assert rc != 0 and "gpu-1: made of chat is worse than in" in output, output
    assert "80.0 % 60 10 " in output and " worse" in output, output
    assert steps(fleet) == ["gpu-1 drain", "gpu-1 apply", "gpu-1 undo"]
    before, after = (json.loads((place / name / "gpu-1/chat/made.json").read_text()) for name in ("before", "after"))
    assert (before["score"], after["score"], after["samples"]) == (0.8, 0.75, 1000)


@pytest.mark.long
def test_answers_that_only_changed_let_the_rollout_pass(fleet):
    fleet.lost, fleet.gained = 20, 18
    rc, output = fleet.roll_out(hosts="gpu-1")
    assert rc == 0 and "no difference found" in output, output
    assert steps(fleet) == ["gpu-1 drain", "gpu-1 apply", "gpu-1 return"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"evaluate_compare": "/nowhere"}, "evaluate_compare: /nowhere is not a directory on the controller"),
        ({"evaluate_samples": 500}, "made: evaluate_samples: found 500, but the run to compare with has 0"),
        ({"evaluate_tasks": "gpqa"}, "evaluate_data: gpqa is missing"),
        (
            {"rollout_gate_tasks": ["evaluate.yml"]},
            'rollout_gate_tasks: found "evaluate.yml", expected the absolute',
        ),
    ],
)
def test_what_cannot_be_compared_ends_before_anything_changes(fleet, variables, expected):
    rc, output = fleet.roll_out(**variables)
    assert rc != 0 and expected in output, output
    assert steps(fleet) == []
