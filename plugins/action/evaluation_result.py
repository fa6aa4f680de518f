# SPDX-License-Identifier: GPL-3.0-or-later

import contextlib
import os
from datetime import datetime, timezone
from typing import Any, Mapping

from ansible.errors import AnsibleActionFail

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.output import show
from ..plugin_utils.evaluation.compare import Comparison, compare
from ..plugin_utils.evaluation.files import find_result, read_answers, read_result, result_path, update_evidence, write
from ..plugin_utils.evaluation.report import report
from ..plugin_utils.evaluation.results import make_result, render


class ActionModule(ControllerAction):
    """Keep the result of one task, or report all results of a host."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables["inventory_hostname"]
        if options["answers"]:
            return keep(options["answers"], options["settings"], host)
        found, compared = read_all(options, host)
        show(f"{host}\n{report(found, compared)}")
        worse = sorted(
            f"{task} of {instance}" for (instance, task), each in compared.items() if each.verdict == "worse"
        )
        if worse:
            raise AnsibleActionFail(
                f"{host}: {', '.join(worse)} is worse than in {options['compare']} (p < 0.05), see the table"
            )
        return {
            "changed": bool(options["evidence"]) and update_evidence(options["evidence"], found),
            "results": [{key: value for key, value in result.items() if key != "items"} for result in found],
            "comparisons": [
                {"instance": instance, "task": task, **each.as_dict()} for (instance, task), each in compared.items()
            ],
        }


def keep(answers: str, settings: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Publish the result of a host's answers, and remove the fetched file in any case."""
    date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        result = make_result(read_answers(answers), settings, host, date)
        write(settings["path"], render(result))
    finally:
        with contextlib.suppress(OSError):
            os.unlink(answers)
    return {"changed": True, "score": result["score"], "samples": result["samples"], "path": settings["path"]}


def read_all(options: Mapping[str, Any], host: str) -> tuple[list[dict[str, Any]], dict[tuple[str, str], Comparison]]:
    """Return the results of a host, and the comparisons by instance and task."""
    found: list[dict[str, Any]] = []
    compared: dict[tuple[str, str], Comparison] = {}
    for instance in options["instances"]:
        for task in options["tasks"]:
            result = read_result(result_path(options["directory"], host, instance, task))
            if result is None:
                continue
            found.append(result)
            if options["compare"]:
                before = find_result(options["compare"], host, instance, task)
                compared[instance, task] = compare(before, result)
    return found, compared
