# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

from ..plugin_utils.catalog.faults import FaultsError
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.health.settings import settings_of


class ActionModule(ControllerAction):
    """Put together what the health service of a host has to know."""

    ROLES = ("health",)
    ERRORS = (FaultsError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables["inventory_hostname"]
        return {"settings": settings_of(options["accelerator"], host, options["plans"], options["fault_path"])}
