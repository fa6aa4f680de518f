#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: evaluation_run
short_description: (internal) Ask a vLLM instance the questions of one task with lm-eval, gpt_oss.evals or AISBench
version_added: 0.7.0
description:
  - Internal to the playbook C(baremetal.inference.evaluate).
  - Runs the tool on the host against an instance of the role P(baremetal.inference.vllm#role), at the address and with
    the key from the files of the instance, and writes the judged answers into a file in O(work).
  - One evaluation of an instance runs at a time on a host. What interrupted ones left beside O(work) is removed.
  - The tool runs as the user C(nobody), gets the key in its environment and asks no hub. Its log may quote the key and
    is never kept; what of it gets into a message is masked.
author:
  - the baremetal.inference authors (@baremetal-inference)
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
options:
  instance:
    description: Name of the instance.
    type: str
    required: true
  config_dir:
    description: Directory with the files of O(instance).
    type: path
    default: /etc/vllm
  environment:
    description: The virtual environment that has the tool.
    type: path
    required: true
  tool:
    description: The tool that asks the questions and judges the answers.
    type: str
    choices: [lm-eval, gpt-oss, aisbench]
    default: lm-eval
  program:
    description: The text of the program that runs C(gpt_oss.evals); required for it.
    type: str
    default: ""
  work:
    description:
      - A directory of this run alone, C(evaluate-X.INSTANCE). It is given to the user C(nobody).
    type: path
    required: true
  task:
    description: Name of the task.
    type: str
    required: true
  kind:
    description: How an answer is recognised.
    type: str
    choices: [choice, number, word]
    required: true
  data:
    description: The file with a sample in each line, as M(baremetal.inference.evaluation_plan) writes it.
    type: path
    required: true
  request:
    description: What each request has beside the question.
    type: dict
    required: true
  concurrency:
    description: How many questions are asked at the same time, at least 2.
    type: int
    default: 32
  request_timeout:
    description: Seconds until one answer must be complete.
    type: int
    default: 3600
  timeout:
    description: Seconds until all answers must be complete.
    type: int
    default: 21600
  root:
    description: Root of the host's files; for tests.
    type: path
    default: /
notes:
  - Reading the secrets needs root (C(become)).
"""

EXAMPLES = r"""
- name: Ask the questions of a task
  baremetal.inference.evaluation_run:
    instance: chat
    environment: /opt/vllm/lm-eval-0.4.13-0123456789ab
    work: /var/tmp/evaluate-X.NAME
    task: made
    kind: word
    data: /var/tmp/evaluate-X.NAME/samples.jsonl
    request: {max_tokens: 64, temperature: 0}
  become: true
"""

RETURN = r"""
path:
  description: The file on the host with the answers, compressed JSON.
  returned: success
  type: str
correct:
  description: How many answers are right.
  returned: success
  type: int
samples:
  description: How many questions were asked.
  returned: success
  type: int
"""

import os
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.common.kinds import show_value
from ..module_utils.endpoint.ready import Watch
from ..module_utils.evaluation.gpt_oss import PROGRAM
from ..module_utils.evaluation.lm_eval import KINDS
from ..module_utils.evaluation.run_host import (
    BusyError,
    Ended,
    lock_instance,
    missing_bytes,
    prepare,
    read_data,
    read_items,
    remove_abandoned,
    run,
    write_result,
)
from ..module_utils.evaluation.tool import UNREADABLE, OutputError, Run, environment
from ..module_utils.evaluation.tools import DEFAULT, TOOLS
from ..module_utils.instance.config_file import API_KEY
from ..module_utils.slots.host import Host, Slots
from ..module_utils.slots.restore_host import Engine
from ..module_utils.slots.state import SlotError
from ..module_utils.vllm.installed_host import InstalledError, endpoint_in, secrets_in, worth_masking
from ..module_utils.vllm.unit import Unit, UnitError, mask, reasons, redact_lines


class EvaluationError(Exception):
    """The task was not evaluated; the message is the whole sentence."""


class Evaluation:
    """One task asked of one instance."""

    def __init__(self, module: AnsibleModule) -> None:
        self.params: dict[str, Any] = module.params
        self.name: str = self.params["instance"]
        if not re.match(r"[A-Za-z0-9][\w.:@\\-]*\Z", self.name):
            raise EvaluationError(f"instance: found {show_value(self.name)}, expected a name such as chat")
        self.tool = TOOLS[self.params["tool"]]
        self.url, models = endpoint_in(self.params["config_dir"], self.name)
        self.model = models[0]
        secrets = secrets_in(self.params["config_dir"], self.name)
        self.key, self.secrets = secrets.get(API_KEY, ""), worth_masking(secrets)
        module.no_log_values.update(self.secrets)
        self.host = Host(self.params["root"], Engine(module.run_command).image_id)
        self.watch = Watch(Unit(f"vllm@{self.name}.service", module.run_command))

    def ask(self) -> list[dict[str, Any]]:
        """Return the judged answers. Raises EvaluationError."""
        work, task, params, tool = self.params["work"], self.params["task"], self.params, self.tool
        program = f"{params['environment']}/{tool.program}"
        if not os.access(program, os.X_OK):
            raise EvaluationError(
                f"{program} is not on this host; leave evaluate_environment empty to have the environment made, or set "
                f"it to one with {tool.label}"
            )
        questions, size = read_data(params["data"])
        needed, free = missing_bytes(work, len(questions), size)
        if free < needed:
            raise EvaluationError(
                f"{work}: found {free >> 20} MiB free, expected {needed >> 20} MiB for {len(questions)} answers; make "
                "room there"
            )
        chats = Run(
            task, params["kind"], params["data"], work, self.url, self.model, params["request"], params["concurrency"],
            params["request_timeout"],
        )  # fmt: skip
        files = tool.files(chats, questions)
        prepare(work, {**files, PROGRAM: params["program"]} if params["program"] else files)
        invocation = self.watch.invocation
        ended = run([program, *tool.arguments(work)], environment(work, self.key), work, params["timeout"])
        self._check(ended, invocation)
        try:
            return read_items(work, tool, task, questions, ended.log)
        except OutputError as exc:
            raise EvaluationError(mask(str(exc), self.secrets)) from exc

    def _check(self, ended: Ended, invocation: str) -> None:
        """Raise EvaluationError unless the tool finished and vLLM was not restarted."""
        problem = self.watch.check()
        if ended.status == 0 and not problem and self.watch.now.invocation == invocation:
            return
        after = f"after {ended.seconds:.0f} s"
        if problem or self.watch.now.invocation != invocation:
            what = problem or f"unit {self.watch.unit.name} was restarted"
            lines = redact_lines(reasons(self.watch.unit.journal(invocation)), self.secrets)
            why = f". The reason, from its journal: {'; '.join(lines)}" if lines else ""
            raise EvaluationError(f"{what} {after}, so the task was not completed{why}")
        if ended.status is None:
            raise EvaluationError(
                f"not every question was answered {after}; raise evaluate_timeout, or ask fewer with evaluate_samples"
            )
        raise EvaluationError(
            f"{self.tool.title} failed {after} with status {ended.status}: "
            f"{mask(self.tool.reason(ended.log), self.secrets)}"
        )

    def document(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the content of the file of answers."""
        state = self.host.state(self.name).digest
        slots = Slots(self.host, self.name)
        plan = slots.read(state).plan if state in slots.digests() else {}
        return {
            "instance": self.name,
            "model": self.model,
            "state": state,
            "plan": plan,
            "tool": self.tool.label,
            "task": self.params["task"],
            "unreadable": sum(item["answer"] == UNREADABLE for item in items),
            "items": [{**item, "response": mask(str(item["response"]), self.secrets)} for item in items],
        }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "instance": {"type": "str", "required": True},
            "config_dir": {"type": "path", "default": "/etc/vllm"},
            "environment": {"type": "path", "required": True},
            "tool": {"type": "str", "choices": list(TOOLS), "default": DEFAULT},
            "program": {"type": "str", "default": ""},
            "work": {"type": "path", "required": True},
            "task": {"type": "str", "required": True},
            "kind": {"type": "str", "choices": list(KINDS), "required": True},
            "data": {"type": "path", "required": True},
            "request": {"type": "dict", "required": True},
            "concurrency": {"type": "int", "default": 32},
            "request_timeout": {"type": "int", "default": 3600},
            "timeout": {"type": "int", "default": 21600},
            "root": {"type": "path", "default": "/"},
        },
    )
    module.run_command_environ_update = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    where = f"instance {module.params['instance']}, task {module.params['task']}"
    try:
        evaluation = Evaluation(module)
        path = f"{module.params['work']}/result.json.gz"
        with lock_instance(f"{module.params['config_dir']}/{evaluation.name}.yaml"):
            remove_abandoned(module.params["work"], evaluation.name)
            items = evaluation.ask()
            write_result(path, evaluation.document(items))
    except OSError as exc:
        module.fail_json(msg=f"{where}: {exc.filename or module.params['work']}: {exc.strerror}")
    except (BusyError, EvaluationError, InstalledError, SlotError, UnitError, ValueError) as exc:
        module.fail_json(msg=f"{where}: {exc}")
    module.exit_json(changed=False, path=path, correct=sum(item["correct"] for item in items), samples=len(items))


if __name__ == "__main__":
    main()
