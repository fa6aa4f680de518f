#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tune_lock
short_description: (internal) Let one tune at a time work on a host
description: Keeps a file on the host with the tune that works on it and the states that the instances go back to. It
  outlives an interrupted tune; the same tune takes it again.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
options:
  state:
    description:
      - V(status) returns the holder, and fails where it is another tune; V(taken) takes the lock, V(free) releases it.
    type: str
    choices: [status, taken, free]
    default: status
  id:
    description: Name of the tune.
    type: str
    required: true
  states:
    description: The digest of the state that each unit goes back to.
    type: dict
    default: {}
  take_over:
    description: Name of another tune that is known to be dead, whose lock is taken over.
    type: str
    default: ""
  path:
    description: File of the lock.
    type: path
    default: /var/lib/vllm/tune.json
"""

EXAMPLES = "\n# playbooks/tune.yml\n"

RETURN = r"""
holder:
  description: The holder before, with C(id), C(since) and C(states); empty where there was none.
  type: dict
  returned: success
"""

import contextlib
import json
import os
import time
from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.common.files_host import locked, publish


def read(path: str) -> dict[str, Any]:
    """Return the holder of the lock, empty where there is none. Raises OSError."""
    try:
        with open(path, encoding="utf-8") as file:
            holder = json.load(file)
    except FileNotFoundError:
        return {}
    except ValueError:
        holder = None
    if isinstance(holder, dict) and holder.get("id"):
        return holder
    # It is written by rename, so it was changed by hand.
    return {"id": "unreadable", "since": "", "states": {}}


def check_holder(module: AnsibleModule, holder: dict[str, Any]) -> None:
    """Fail where another tune holds the lock."""
    allowed = ("", module.params["id"], module.params["take_over"] or module.params["id"])
    if holder.get("id", "") not in allowed:
        module.fail_json(
            msg=f"{module.params['path']}: the tune {holder['id']} has been working on this host since "
            f"{holder.get('since')}; wait until it has ended, or run it again where it was interrupted. If it is known "
            f"to be dead, run site.yml on this host and take its lock over with -e tune_take_over={holder['id']}"
        )


def work(module: AnsibleModule) -> dict[str, Any]:
    """Return the result of the module. Raises OSError."""
    options, path = module.params, module.params["path"]
    holder = read(path)
    if options["state"] == "free":
        changed = holder.get("id") == options["id"]
        if changed and not module.check_mode:
            os.unlink(path)
        return {"changed": changed, "holder": holder}
    check_holder(module, holder)
    changed = options["state"] == "taken" and holder.get("id") != options["id"]
    if changed and not module.check_mode:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        publish(path, json.dumps({"id": options["id"], "since": since, "states": options["states"]}))
    return {"changed": changed, "holder": holder}


def main() -> None:
    """Run the module."""
    module = start_module(
        {
            "state": {"type": "str", "choices": ["status", "taken", "free"], "default": "status"},
            "id": {"type": "str", "required": True},
            "states": {"type": "dict", "default": {}},
            "take_over": {"type": "str", "default": ""},
            "path": {"type": "path", "default": "/var/lib/vllm/tune.json"},
        }
    )
    path = module.params["path"]
    directory = os.path.dirname(path)
    try:
        # Two concurrent runs decide one after the other; without a directory there is nothing to lock.
        with locked(f"{path}.lock") if os.path.isdir(directory) else contextlib.nullcontext():
            found = work(module)
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or path}: {exc.strerror}; the lock of a tune is kept there")
    module.exit_json(**found)


if __name__ == "__main__":
    main()
