# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.rollout.journal import JournalError
from ..plugin_utils.rollout.orders import end_of, orders_after_wave, orders_of_host, rollout_of


class ActionModule(ControllerAction):
    """Returns what a rollout orders next; the action rollout_journal writes what happens."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        rollout, path = rollout_of(variables)
        try:
            if options["of"] == "wave":
                return orders_after_wave(path, rollout, options["wave"])
            if options["of"] == "rollout":
                return end_of(path)
        except OSError as exc:
            raise JournalError(f"{path}: {exc.strerror}; the journal of the rollout is kept there") from exc
        return orders_of_host(variables["inventory_hostname"], rollout, options)
