# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, ClassVar

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.fleet.host_reader import FleetError, HostReader
from ..plugin_utils.mirror.missing import MissingError, missing_of
from ..plugin_utils.mirror.needs import NeedsError, PlanError


class ActionModule(ControllerAction):
    """Decide for all hosts at once."""

    ERRORS: ClassVar[tuple[type[Exception], ...]] = (FleetError, MissingError, NeedsError, PlanError)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        return missing_of(options["hosts"], HostReader(variables["hostvars"], self._loader)).as_dict()
