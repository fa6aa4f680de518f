# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.fleet.host_reader import HostReader
from ..plugin_utils.mirror.missing import missing_of


class ActionModule(ControllerAction):
    """Decide for all hosts at once."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        return missing_of(options["hosts"], HostReader(variables["hostvars"], self._loader)).as_dict()
