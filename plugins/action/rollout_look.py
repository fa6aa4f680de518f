# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.baremetal.inference.plugins.module_utils._names import nearest
from ansible_collections.baremetal.inference.plugins.module_utils._rollout_journal import JOURNAL, read, state_of
from ansible_collections.baremetal.inference.plugins.module_utils._rollout_look import (
    changes_of,
    in_words,
    returns_of,
    spanning,
)

ARGUMENT_SPEC = {
    "kind": {"type": "str", "choices": ["change", "rollback"], "default": "change"},
    "plans": {"type": "dict", "default": {}},
    "slots": {"type": "dict", "default": {}},
    "turn": {"type": "dict", "default": {}},
    "files": {"type": "dict", "default": {}},
    "others": {"type": "list", "elements": "str", "default": []},
    "cluster": {"type": "str", "default": ""},
    "undo": {"type": "str", "default": ""},
    "directory": {"type": "path", "default": ""},
    "options": {"type": "dict", "required": True},
}


def touched_by(rollout: str, directory: str) -> list[str]:
    """Return the hosts that a rollout, or the ``last`` one, has changed or begun to change.

    Raises AnsibleActionFail where there is no such journal on this controller.
    """
    known = sorted(
        name for name in (os.listdir(directory) if os.path.isdir(directory) else []) if _is_one(directory, name)
    )
    name = known[-1] if rollout == "last" and known else rollout
    if name not in known:
        found = nearest(rollout, known) if known else "there is none"
        raise AnsibleActionFail(f"rollout_undo: no rollout {rollout!r} in {directory} on this controller; {found}")
    state = state_of(read(os.path.join(directory, name, JOURNAL)))
    return [host for host, step in state.steps.items() if step == "done" or host in state.unfinished() or step == "out"]


def _is_one(directory: str, name: str) -> bool:
    return os.path.isfile(os.path.join(directory, name, JOURNAL))


class ActionModule(ActionBase):
    """Puts together what was seen of a host; no connection is made."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, options = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        slots, turn, host = options["slots"], options["turn"], (task_vars or {})["inventory_hostname"]
        if options["kind"] == "change":
            changes = changes_of(options["plans"], slots, options["files"])
        else:
            meant = not options["undo"] or host in touched_by(options["undo"], options["directory"])
            changes, problems = returns_of(slots, bool(turn)) if meant else ({}, [])
            if problems and not changes:
                raise AnsibleActionFail("\n".join(f"{host}: {text}" for text in problems))
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
            "concerned": bool(words or turn),
            "interrupted": str(turn.get("id") or "an unknown one") if turn else "",
            "instances": list(options["plans"] or slots),
            # The other hosts of an instance that spans several answer nobody.
            "servers": [
                name
                for name in options["plans"] or slots
                if "--headless" not in options["plans"].get(name, {}).get("argv", [])
            ],
            # Nothing can be gone back to where nothing was kept.
            "unkept": [
                name
                for name, slot in slots.items()
                if slot.get("up") and not slot.get("good") and not slot.get("stale")
            ],
            "running": [name for name, slot in slots.items() if slot.get("up")],
            "unmeasured": [
                name for name, slot in slots.items() if slot.get("up") and not (slot.get("good") or {}).get("record")
            ],
            "options": options["options"],
        }
