# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.removal.request import parse_request


class ActionModule(ControllerAction):
    """Check what the variables of remove.yml ask for."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        return parse_request(options, variables)
