# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout orders next, from its plan, the results of its tasks and its journal. Nothing is written."""

import os
from typing import Any, Mapping

from .events import baselines_of, detail_of, message_of
from .journal import JOURNAL, read, shorten, state_of

# Registered on localhost by the play that decides. It is not templated, because it is as large as the fleet.
PLAN = "rollout_plan"
# What is written to a host while it is being updated.
MARK = ("id", "kind", "user", "controller")


def rollout_of(variables: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the plan of the rollout and the path of its journal."""
    rollout: Mapping[str, Any] = variables["hostvars"].raw_get("localhost")[PLAN]
    return rollout, os.path.join(rollout["directory"], rollout["id"], JOURNAL)


def orders_of_host(host: str, rollout: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of a host, and what its gates are compared with and have measured."""
    detail = detail_of(options)
    return {
        "turn": rollout["hosts"].get(host, {}),
        "mark": {key: rollout.get(key) for key in MARK},
        "detail": detail,
        "short": shorten(detail),
        "baselines": baselines_of(options["slots"], options["measured"]),
        "figures": {entry["item"]: entry["figures"] for entry in options["gates"] if entry.get("figures")},
    }


def orders_after_wave(path: str, rollout: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return why no further wave comes, empty where one does or where this was the last. Raises OSError."""
    is_last = number == len(rollout["waves"]) - 1
    return {"stop": "" if is_last else state_of(read(path)).stopped}


def end_of(path: str) -> dict[str, Any]:
    """Return the result that the journal ends with, as a word and as a message. Raises OSError."""
    state = state_of(read(path))
    return {"journal": path, "result": state.result, "message": message_of(state, state.result)}
