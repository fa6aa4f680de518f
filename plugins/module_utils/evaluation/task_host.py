# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask an instance the questions of one task, and return the judged answers."""

from __future__ import annotations

import inspect
import os
import re
import time
from typing import Any

from ..common.foreign_trees_host import remove_tree
from ..common.kinds import show_value
from ..common.module import Module
from ..endpoint.client import split_url
from ..endpoint.ready import Watch
from ..instance.config_file import API_KEY
from ..instance.config_host import endpoint_in, secrets_in, worth_masking
from ..instance.listener_guard_host import ListenerGuard
from ..instance.listener_host import StrangerError, processes_of
from ..slots.host import Slots
from ..slots.installed_host import Host
from ..slots.restore_host import Engine
from ..vllm.unit import Unit, mask, reasons, redact_lines
from . import gpt_oss, gpt_oss_program_host
from .run_host import Ended, missing_bytes, prepare, read_data, read_items, run
from .tool import UNREADABLE, OutputError, Run, environment
from .tools import TOOLS

_NOTICED = 1.0


class EvaluationError(Exception):
    """The task was not evaluated; the message is the whole sentence."""


class Evaluation:
    """One task asked of one instance."""

    def __init__(self, module: Module) -> None:
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
            task, params["kind"], params["data"], f"{work}/tool", self.url, self.model, params["request"],
            params["concurrency"], params["request_timeout"],
        )  # fmt: skip
        files = tool.files(chats, questions)
        if tool is gpt_oss.TOOL:
            files = {**files, gpt_oss.PROGRAM: inspect.getsource(gpt_oss_program_host)}
        own = prepare(work, files)
        try:
            invocation = self.watch.invocation
            words = [program, *tool.arguments(own)]
            ended = run(words, environment(own, self.key), own, params["timeout"], self._guard())
            self._check(ended, invocation)
            return read_items(own, tool, task, questions, ended.log)
        except OutputError as exc:
            raise EvaluationError(mask(str(exc), self.secrets)) from exc
        finally:
            remove_tree(own, ignore_errors=True)

    def _guard(self) -> ListenerGuard:
        """Return the guard of the key. Raises EvaluationError unless it is the instance that listens."""
        parts = split_url(self.url)
        try:
            return ListenerGuard(parts.hostname or "", parts.port or 0, processes_of(self.name))
        except StrangerError as exc:
            raise EvaluationError(str(exc)) from exc
        except OSError as exc:
            raise EvaluationError(f"{self.url}: {exc.strerror or exc}, expected the instance to listen there") from exc

    def _check(self, ended: Ended, invocation: str) -> None:
        """Raise EvaluationError unless the tool finished and vLLM was not restarted."""
        if ended.problem:
            # systemd notices the end of the process a moment after the kernel has closed its port.
            time.sleep(_NOTICED)
        problem = self.watch.check()
        if ended.status == 0 and not ended.problem and not problem and self.watch.now.invocation == invocation:
            return
        after = f"after {ended.seconds:.0f} s"
        if problem or ended.problem or self.watch.now.invocation != invocation:
            is_restarted = self.watch.now.invocation != invocation
            what = problem or (f"unit {self.watch.unit.name} was restarted" if is_restarted else ended.problem)
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
