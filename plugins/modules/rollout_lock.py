#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_lock
short_description: (internal) Let one rollout at a time work on a cluster
description:
  - Keeps a file with the holder of a cluster's lock on a host that every controller of the cluster can reach.
  - A lock outlives the process that took it. The controller that took it knows whether the process still runs, and
    names such rollouts in O(stale).
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
options:
  cluster:
    description: Name of the cluster, empty for hosts without one.
    type: str
    required: true
  state:
    description: V(taken) takes the lock, or fails with its holder; V(free) releases the lock of O(id) and no other.
    type: str
    choices: [taken, free]
    default: taken
  id:
    description: Name of the rollout.
    type: str
    required: true
  holder:
    description: User and controller of the rollout, for the message to others who want the lock.
    type: str
    default: ""
  stale:
    description: Rollouts that no longer run; their locks are taken over.
    type: list
    elements: str
    default: []
  directory:
    description: Directory of the locks.
    type: path
    default: /var/lib/baremetal-rollout
"""

EXAMPLES = "\n# roles/rollout/tasks/lock.yml\n"

RETURN = r"""
holder:
  description: The holder before; empty where there was none.
  type: dict
  returned: success
"""

import contextlib
import json
import os
import re
import time
from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.common.files_host import locked, publish


def main() -> None:
    module = start_module(
        {
            "cluster": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["taken", "free"], "default": "taken"},
            "id": {"type": "str", "required": True},
            "holder": {"type": "str", "default": ""},
            "stale": {"type": "list", "elements": "str", "default": []},
            "directory": {"type": "path", "default": "/var/lib/baremetal-rollout"},
        }
    )
    options, directory = module.params, module.params["directory"]
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", options["cluster"]) or "no-cluster"
    path = os.path.join(directory, f"{name}.json")
    try:
        if options["state"] == "taken" and not module.check_mode:
            os.makedirs(directory, mode=0o755, exist_ok=True)
        # Concurrent runs wait until this one has decided; without a directory there is nothing to lock.
        with locked(os.path.join(directory, ".lock")) if os.path.isdir(directory) else contextlib.nullcontext():
            holder = read(path)
            changed = take(module, path, holder) if options["state"] == "taken" else free(module, path, holder)
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or path}: {exc.strerror}; the locks of rollouts are kept there")
    module.exit_json(changed=changed, holder=holder)


def read(path: str) -> dict[str, Any]:
    """Return the holder of the lock, empty if it is free."""
    try:
        with open(path, encoding="utf-8") as file:
            holder = json.load(file)
    except FileNotFoundError:
        return {}
    except ValueError:
        # It is written by rename, so it was changed by hand.
        return {"id": "an unreadable one", "holder": f"somebody ({path} is not JSON)", "since": ""}
    return holder if isinstance(holder, dict) else {}


def take(module: AnsibleModule, path: str, holder: dict[str, Any]) -> bool:
    """Take the lock; return whether that changed anything."""
    options = module.params
    if holder.get("id") == options["id"]:
        return False
    if holder and holder.get("id") not in options["stale"]:
        cluster = f"cluster {options['cluster']}" if options["cluster"] else "the hosts without a cluster"
        module.fail_json(
            msg=f"{cluster}: {holder.get('holder')} has been rolling out here since {holder.get('since')} "
            f"({holder.get('id')}); wait until it has ended. If it is known to be dead, take its lock over with "
            f"-e rollout_take_over={holder.get('id')}"
        )
    if module.check_mode:
        return True
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    publish(path, json.dumps({"id": options["id"], "holder": options["holder"], "since": now}))
    return True


def free(module: AnsibleModule, path: str, holder: dict[str, Any]) -> bool:
    """Release the lock; return whether that changed anything."""
    if holder.get("id") != module.params["id"]:
        return False
    if not module.check_mode:
        os.unlink(path)
    return True


if __name__ == "__main__":
    main()
