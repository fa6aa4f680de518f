# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..module_utils.evaluation.tools import TOOLS
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.evaluation.files import choose_lock, make_answers_directory
from ..plugin_utils.evaluation.plan import instances_of, pending


class ActionModule(ControllerAction):
    """Decide which instances of a host are asked what, and with which environment."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, directory, compare = variables["inventory_hostname"], options["directory"], options["compare"]
        states = instances_of(options["instances"], options["statuses"], host)
        left = pending(options["tasks"], states, host, directory, compare)
        lock = ""
        if left:
            make_answers_directory(directory)
        if left and options["needs_environment"]:
            lock = str(choose_lock(TOOLS[options["tool"]], options["python_version"], options["machine"]))
        return {
            "tasks": options["tasks"],
            "instances": list(states),
            "pending": left,
            "lock": lock,
            "directory": directory,
            "compare": compare,
        }
