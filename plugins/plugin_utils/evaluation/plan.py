# SPDX-License-Identifier: GPL-3.0-or-later
"""Which tasks each instance of a host is asked, and which of them already have a result."""

import hashlib
import os
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest
from ...module_utils.evaluation.tools import DEFAULT, TOOLS
from . import files
from .compare import SETTINGS, check_comparable
from .data import choose, read_samples
from .tasks import EvaluationError, request_of, select


@dataclass(frozen=True)
class Request:
    """The request of the user: the variables of playbooks/evaluate.yml."""

    tasks: Any
    task_path: Sequence[str]
    data: Mapping[str, Any]
    request: Mapping[str, Any]
    limit: int
    directory: str
    compare: str
    tool: str = DEFAULT


def plan_tasks(request: Request) -> list[dict[str, Any]]:
    """Return task, kind, samples, the settings that make runs comparable, and the path of the prepared questions.

    Every data file is read and checked; the questions are written below the directory of the results. Raises
    EvaluationError.
    """
    if request.limit < 0:
        raise EvaluationError(f"evaluate_samples: found {request.limit}, expected 0 (all questions) or more")
    if request.compare and not os.path.isdir(request.compare):
        raise EvaluationError(
            f"evaluate_compare: {request.compare} is not a directory on the controller, expected the results of an "
            "earlier run"
        )
    if request.tool not in TOOLS:
        raise EvaluationError(f"evaluate_tool: found {show_value(request.tool)}; {nearest(request.tool, TOOLS)}")
    known = files.find_tasks(request.task_path)
    names = select(request.tasks, known)
    tool = TOOLS[request.tool]
    for name in names:
        if tool.tasks and name not in tool.tasks:
            raise EvaluationError(
                f"evaluate_tasks: {tool.title} has no task {name!r}, expected {' or '.join(tool.tasks)}; lm-eval, the "
                "default of evaluate_tool, takes every task"
            )
    for name in request.data:
        if name not in known:
            raise EvaluationError(f"evaluate_data: no task {name!r}; {nearest(name, known)}")
    return [_plan_task(name, known[name], request) for name in names]


def _plan_task(name: str, path: Any, request: Request) -> dict[str, Any]:
    definition = files.load_task(path)
    given = request.data.get(name) or {}
    where, expected = files.locate_data(path, definition, given, downloads(request.directory))
    if "url" in given:
        files.download(name, str(given["url"]), where, expected)
    text, digest = files.read_data(name, where, expected)
    everything = read_samples(definition, text, where)
    samples = choose(everything, name, request.limit)
    tool = TOOLS[request.tool]
    lines = "".join(f"{sample.line(bool(tool.tasks))}\n" for sample in samples)
    prepared = os.path.join(
        downloads(request.directory), f"{name}-{hashlib.sha256(lines.encode()).hexdigest()[:16]}.jsonl"
    )
    files.check_room(request.directory, len(samples))
    files.write(prepared, lines)
    return {
        "task": name,
        "title": definition.title,
        "kind": definition.kind,
        "tool": tool.label,
        "samples": len(samples),
        "definition_sha256": definition.digest,
        "data_sha256": digest,
        "limit": request.limit if len(samples) < len(everything) else 0,
        "request": request_of(definition, request.request),
        "prepared": prepared,
    }


def downloads(directory: str) -> str:
    """Return the directory of downloaded data and prepared questions."""
    return os.path.join(directory, ".data")


def pending(
    tasks: Sequence[Mapping[str, Any]], states: Mapping[str, str], host: str, directory: str, compare: str
) -> list[dict[str, Any]]:
    """Return the open tasks: each task of each instance without a result of the same state and settings.

    ``states`` has the digest of each instance's served state, ``directory`` the results, and ``compare`` those of an
    earlier run, empty for none. Raises EvaluationError if a result is of another state,
    and if there is nothing to compare with.
    """
    found = []
    for instance, state in states.items():
        for task in tasks:
            if compare:
                before = files.find_result(compare, host, instance, task["task"])
                check_comparable(before, task)
            path = files.result_path(directory, host, instance, task["task"])
            result = files.read_result(path)
            if result is None:
                answers = files.answers_path(directory, host, instance, task["task"])
                found.append({**task, "instance": instance, "path": path, "answers": answers})
                continue
            _check_same(result, task, state, path)
    return found


def _check_same(result: Mapping[str, Any], task: Mapping[str, Any], state: str, path: str) -> None:
    """Raise EvaluationError where a kept result is of another state of the instance, or of other settings."""
    for key, value in (("state", state), *((key, task[key]) for key in SETTINGS)):
        if result[key] != value:
            raise EvaluationError(
                f"{path} holds another run: {key}: found {show_value(result[key])}, this run has {show_value(value)}; "
                "set evaluate_dir to another directory, or remove the file"
            )


def instances_of(requested: Sequence[str], statuses: Mapping[str, Mapping[str, Any]], host: str) -> dict[str, str]:
    """Return the digest of the served state of each requested instance (all of the host if none is named).

    ``statuses`` are those of the module instance_slot. Raises EvaluationError for an instance that is not there or does
    not run.
    """
    installed = {name: status for name, status in statuses.items() if status["installed"]}
    if not installed:
        raise EvaluationError(f"{host}: no instance is installed; run site.yml first, or limit the run with -l")
    for name in requested:
        if name not in installed:
            raise EvaluationError(f"evaluate_instances: {host} has no instance {name!r}; {nearest(name, installed)}")
    names = [name for name in installed if name in requested] if requested else list(installed)
    for name in names:
        if not installed[name]["up"] or installed[name]["stale"]:
            what = "does not run" if not installed[name]["up"] else "runs with other files than those installed"
            raise EvaluationError(f"{host}: instance {name} {what}; run site.yml first")
    return {name: installed[name]["digest"] for name in names}
