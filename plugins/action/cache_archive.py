# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.mirror.caches import keep_archive


class ActionModule(ControllerAction):
    """Keep a fetched archive of compiled caches."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        name, warning = keep_archive(
            options["directory"],
            variables["inventory_hostname"],
            options["plan"],
            options["packed"],
            options["fetched"],
        )
        return {"changed": not warning, "archive": name, "warnings": [warning] if warning else []}
