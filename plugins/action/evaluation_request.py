# SPDX-License-Identifier: GPL-3.0-or-later

import os
from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.evaluation.plan import Request, plan_tasks


class ActionModule(ControllerAction):
    """Check the tasks of an evaluation and prepare their questions."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        directory = os.path.abspath(options["directory"])
        compare = os.path.abspath(options["compare"]) if options["compare"] else ""
        request = Request(
            options["tasks"],
            options["task_path"],
            options["data"],
            options["request"],
            options["samples"],
            directory,
            compare,
            options["tool"],
        )
        return {"tasks": plan_tasks(request), "directory": directory, "compare": compare, "tool": options["tool"]}
