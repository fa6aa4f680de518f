# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.bench.request import check_request
from ..plugin_utils.common.action import ControllerAction


class ActionModule(ControllerAction):
    """Check the request of a benchmark."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        check_request(options)
        return {}
