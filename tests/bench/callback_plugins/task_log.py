# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = """
name: task_log
type: aggregate
short_description: One JSON line for each task and host
description:
  - Writes host, role, action, seconds, changed and skipped of every task result to the file named by C(TASK_LOG).
requirements:
  - enable in configuration
"""

import json
import os
import time

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Writes down how long each task took on each host."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_log"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self):
        super().__init__()
        self._started = {}

    def v2_runner_on_start(self, host, task):
        self._started[host.name, task._uuid] = time.monotonic()

    def _write(self, result, skipped=False):
        host, task = result._host.name, result._task
        with open(os.environ["TASK_LOG"], "a", encoding="utf-8") as log:
            record = {
                "host": host,
                "role": task._role.get_name() if task._role else "",
                "action": task.resolved_action or task.action,
                "seconds": time.monotonic() - self._started.get((host, task._uuid), time.monotonic()),
                "changed": bool(result._result.get("changed")),
                "skipped": skipped,
            }
            log.write(json.dumps(record) + "\n")

    def v2_runner_on_ok(self, result):
        self._write(result)

    def v2_runner_on_skipped(self, result):
        self._write(result, skipped=True)
