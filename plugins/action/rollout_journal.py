# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.rollout.journal import JournalError
from ..plugin_utils.rollout.orders import rollout_of
from ..plugin_utils.rollout.progress import write_events


class ActionModule(ControllerAction):
    """Writes the journal of a rollout on the controller; the action rollout_orders says what comes next."""

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        rollout, path = rollout_of(variables)
        try:
            write_events(path, variables["inventory_hostname"], rollout, options)
        except OSError as exc:
            where = exc.filename or path
            raise JournalError(f"{where}: {exc.strerror}; the journal of the rollout is kept there") from exc
        return {}
