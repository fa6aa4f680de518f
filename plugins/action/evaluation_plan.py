# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from typing import Any, ClassVar, Mapping

from ansible_collections.baremetal.inference.plugins.plugin_utils.common.action import ControllerAction
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.files import choose_lock
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.plan import (
    Request,
    instances_of,
    pending,
    plan_tasks,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.evaluation.tasks import EvaluationError


class ActionModule(ControllerAction):
    """Check everything that can be known before an instance is asked."""

    ARGUMENT_SPEC: ClassVar[Mapping[str, Any]] = {
        "tasks": {"type": "raw", "required": True},
        "task_path": {"type": "list", "elements": "path", "default": []},
        "data": {"type": "dict", "default": {}},
        "request": {"type": "dict", "default": {}},
        "samples": {"type": "int", "default": 0},
        "directory": {"type": "path", "required": True},
        "compare": {"type": "path", "default": ""},
        "instances": {"type": "list", "elements": "str", "default": []},
        "statuses": {"type": "dict", "required": True},
        "python_version": {"type": "str", "required": True},
        "machine": {"type": "str", "required": True},
        "needs_environment": {"type": "bool", "default": True},
    }
    ERRORS: ClassVar[tuple[type[Exception], ...]] = (EvaluationError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables["inventory_hostname"]
        request = Request(
            options["tasks"],
            options["task_path"],
            options["data"],
            options["request"],
            options["samples"],
            os.path.abspath(options["directory"]),
            os.path.abspath(options["compare"]) if options["compare"] else "",
        )
        tasks = plan_tasks(request)
        states = instances_of(options["instances"], options["statuses"], host)
        left = pending(tasks, states, host, request)
        lock = ""
        if left and options["needs_environment"]:
            lock = str(choose_lock(options["python_version"], options["machine"]))
        return {
            "tasks": tasks,
            "instances": list(states),
            "pending": left,
            "lock": lock,
            "directory": request.directory,
            "compare": request.compare,
        }
