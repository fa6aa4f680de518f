# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction, check_options


class ActionModule(ControllerAction):
    """Check the options of a playbook, which every action of this base does, and those of roles."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        check_options(tuple(options["roles"]), variables, self._templar)
        return {}
