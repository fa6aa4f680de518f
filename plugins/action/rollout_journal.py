# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from typing import Any

from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.rollout.events import baselines_of, detail_of
from ..plugin_utils.rollout.journal import JOURNAL, JournalError, shorten
from ..plugin_utils.rollout.progress import write_events

# Registered on localhost by the play that decides. It is not templated, because it is as large as the fleet.
PLAN = "rollout_plan"


class ActionModule(ControllerAction):
    """Keeps the journal of a rollout on the controller."""

    ERRORS = (JournalError,)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        host, rollout = variables["inventory_hostname"], variables["hostvars"].raw_get("localhost")[PLAN]
        path = os.path.join(rollout["directory"], rollout["id"], JOURNAL)
        try:
            found = write_events(path, host, rollout, options)
        except OSError as exc:
            where = exc.filename or path
            raise JournalError(f"{where}: {exc.strerror}; the journal of the rollout is kept there") from exc
        return {
            "journal": path,
            "turn": rollout["hosts"].get(host, {}),
            "mark": {key: rollout.get(key) for key in ("id", "kind", "user", "controller")},
            "detail": detail_of(options),
            "short": shorten(detail_of(options)),
            "baselines": baselines_of(options["slots"], options["measured"]),
            "figures": {entry["item"]: entry["figures"] for entry in options["gates"] if entry.get("figures")},
            **found,
        }
