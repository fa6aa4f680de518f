# SPDX-License-Identifier: GPL-3.0-or-later

from typing import Any, Mapping

from ..module_utils.vllm.plan_document import INNER
from ..plugin_utils.common.action import ControllerAction
from ..plugin_utils.common.answers import INSTANCES, find_odd
from ..plugin_utils.rollout.changes import (
    Changes,
    Slots,
    changes_of,
    describe_changes,
    in_inventory,
    measurable,
    returns_of,
    spanning,
    states_before,
    to_measure,
    undone_of,
)
from ..plugin_utils.rollout.inventory import returned_by, undone_by
from ..plugin_utils.rollout.waves import RolloutError


class ActionModule(ControllerAction):
    """Finds what a rollout or a rollback would change on a host."""

    ROLES = ("rollout",)

    def decide(self, options: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        undo, turn = options["undo"], options["turn"]
        if options["kind"] == "journals":
            return {
                "undone": undone_by(undo, options["directory"]) if undo else {},
                "returned": [] if undo else returned_by(options["directory"]),
            }
        host, slots = variables["inventory_hostname"], options["slots"]
        odd = find_odd(slots, INSTANCES) or find_odd(options["files"], {str: [str]})
        if odd:
            raise RolloutError(f"nothing was changed: {host} answered in another form: {odd}")
        meant = True
        if options["kind"] == "rollback":
            # Not rendered: a rollback must work even if a value in it cannot be rendered.
            named = variables.get("vllm_instances")
            slots = in_inventory(slots, named if isinstance(named, Mapping) else {})
            meant = bool(options["undone"]) if undo else bool(turn) or not options["returned"]
            changes = _returns(host, slots, options) if meant else {}
        else:
            changes = changes_of(options["plans"], slots, options["files"])
        words = "; ".join(filter(None, [*options["others"], describe_changes(changes)]))
        groups = spanning(options["plans"], slots)
        measured, unkept = measurable(slots, bool(turn))
        instances = list(options["plans"] or slots)
        # Of an instance that spans several hosts, some accept no requests of clients.
        servers = [name for name in instances if groups.get(name, {}).get("role") not in INNER]
        return {
            "changes": changes,
            "words": words,
            "concerned": bool(words or (turn and meant)),
            "interrupted": str(turn.get("id") or "an unknown one") if turn else "",
            "instances": instances,
            "servers": servers,
            "groups": groups,
            "installed": {name: slot["digest"] for name, slot in slots.items() if slot.get("digest")},
            # Without a kept state, there is nothing to roll back to.
            "unkept": unkept,
            "states": states_before(slots),
            # Nothing is compared in a rollback.
            "measures": to_measure([name for name in measured if name in servers], slots, options["baseline"])
            if options["prompts"] and options["kind"] == "change"
            else [],
            "options": options["options"],
        }


def _returns(host: str, slots: Slots, options: Mapping[str, Any]) -> Changes:
    """Return the changes of a rollback. Raises RolloutError if no instance of the host can be rolled back."""
    in_turn = bool(options["turn"])
    if options["undo"]:
        changes, problems = undone_of(slots, options["undone"], in_turn, options["turn"].get("kind") == "rollback")
    else:
        changes, problems = returns_of(slots, in_turn)
    if problems and not changes:
        raise RolloutError("\n".join(f"{host}: {text}" for text in problems))
    return changes
