# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.catalog.accelerators import load_catalogue, parts_of
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.health.settings import settings_of


class ActionModule(ControllerAction):
    """Put together what the health service of a host has to know."""

    ROLES = ("health",)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host = variables["inventory_hostname"]
        detected = options["accelerator"]
        entry = load_catalogue(options["accelerator_catalog_path"]).models.get(detected["model"])
        parts = parts_of(entry, options["partition"] or detected.get("partition")) if entry else 1
        return {"settings": settings_of(detected, host, options["plans"], options["fault_path"], parts)}
