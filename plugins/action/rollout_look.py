# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.changes import (
    Slots,
    changes_of,
    in_words,
    listed,
    measurable,
    returns_of,
    spanning,
    states_before,
    undone_of,
)
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.inventory import returned_by, undone_by
from ansible_collections.baremetal.inference.plugins.plugin_utils.rollout.waves import RolloutError

ARGUMENT_SPEC = {
    "kind": {"type": "str", "choices": ["change", "rollback", "journals"], "default": "change"},
    "plans": {"type": "dict", "default": {}},
    "slots": {"type": "dict", "default": {}},
    "turn": {"type": "dict", "default": {}},
    "files": {"type": "dict", "default": {}},
    "others": {"type": "list", "elements": "str", "default": []},
    "cluster": {"type": "str", "default": ""},
    "undo": {"type": "str", "default": ""},
    "directory": {"type": "path", "default": ""},
    "undone": {"type": "dict", "default": {}},
    "returned": {"type": "bool", "default": False},
    "options": {"type": "dict", "default": {}},
}


class ActionModule(ActionBase):
    """Puts together what was seen of a host; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if options["kind"] == "journals":
            return {**result, "changed": False, **_journals(options["undo"], options["directory"])}
        turn, host = options["turn"], (task_vars or {})["inventory_hostname"]
        slots, meant = options["slots"], True
        if options["kind"] == "rollback":
            # As it is written: a rollback has to work where a value in it cannot be rendered.
            named = (task_vars or {}).get("vllm_instances")
            slots = listed(slots, named if isinstance(named, Mapping) else {})
        if options["kind"] == "change":
            changes = changes_of(options["plans"], slots, options["files"])
        else:
            meant = bool(options["undone"]) if options["undo"] else bool(turn) or not options["returned"]
            changes, problems = _back(slots, options) if meant else ({}, [])
            if problems and not changes:
                raise AnsibleActionFail("\n".join(f"{host}: {text}" for text in problems))
        measured, unkept = measurable(slots, bool(turn))
        words = "; ".join(filter(None, [*options["others"], in_words(changes)]))
        spread = spanning(options["plans"])
        if spread and words:
            raise AnsibleActionFail(
                f"{host}: {', '.join(spread)} spans several hosts, and a rollout takes one host after the other; "
                "change it with site.yml on all of its hosts at once, "
                "and leave them out here with -e rollout_hosts=PATTERN"
            )
        return {
            **result,
            "changed": False,
            "cluster": options["cluster"],
            "changes": changes,
            "words": words,
            "concerned": bool(words or (turn and meant)),
            "interrupted": str(turn.get("id") or "an unknown one") if turn else "",
            "instances": list(options["plans"] or slots),
            # The other hosts of an instance that spans several answer nobody.
            "servers": [
                name
                for name in options["plans"] or slots
                if "--headless" not in options["plans"].get(name, {}).get("argv", [])
            ],
            # Nothing can be gone back to where nothing was kept.
            "unkept": unkept,
            "states": states_before(slots),
            "running": measured,
            "unmeasured": [name for name in measured if not (slots[name].get("good") or {}).get("record")],
            "options": options["options"],
        }


def _journals(undo: str, directory: str) -> dict[str, Any]:
    """Return what the rollout that is undone has changed, or else which hosts are back already."""
    try:
        undone = undone_by(undo, directory) if undo else {}
    except RolloutError as exc:
        raise AnsibleActionFail(str(exc)) from exc
    return {"undone": undone, "returned": [] if undo else returned_by(directory)}


def _back(slots: Slots, options: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    in_turn = bool(options["turn"])
    if not options["undo"]:
        return returns_of(slots, in_turn)
    return undone_of(slots, options["undone"], in_turn, options["turn"].get("kind") == "rollback")
