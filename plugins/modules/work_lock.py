#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: work_lock
short_description: (internal) Let one rollout at a time work on a cluster, and one tune on a host
description:
  - Keeps a file with the holder of a lock, for a cluster on a host that every controller of the cluster can reach.
  - A lock outlives the process that took it; the same rollout or tune takes it again.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  kind:
    description: What works under the lock.
    type: str
    choices: [rollout, tune]
    required: true
  cluster:
    description: Cluster of a rollout, empty for hosts without one.
    type: str
    default: ""
  directory:
    description: Directory of the file, otherwise the one that all of a kind use.
    type: path
  state:
    description: V(status) and V(taken) fail where another one holds the lock. V(free) releases the lock of O(id) only.
    type: str
    choices: [status, taken, free]
    default: status
  id:
    description: Name of the rollout or tune.
    type: str
    required: true
  holder:
    description: User and controller, for the message to others who want the lock.
    type: str
    default: ""
  states:
    description: The digest of the state that each unit goes back to after a tune.
    type: dict
    default: {}
  stale:
    description: Names of those that no longer run; their locks are taken over.
    type: list
    elements: str
    default: []
"""

EXAMPLES = "\n# roles/rollout/tasks/lock.yml\n"

import contextlib
import json
import os
import re
import time
from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.common.files_host import locked, make_directories, publish

# Where the locks of a kind are, and the name of one without a cluster.
PLACES = {"rollout": ("/var/lib/baremetal-rollout", "no-cluster"), "tune": ("/var/lib/vllm", "tune")}


def main() -> None:
    module = start_module(DOCUMENTATION)
    options = module.params
    place, name = PLACES[options["kind"]]
    directory = options["directory"] or place
    path = os.path.join(directory, f"{re.sub('[^A-Za-z0-9_.-]', '_', options['cluster']) or name}.json")
    try:
        if options["state"] == "taken" and not module.check_mode:
            make_directories(directory)
        # Concurrent runs wait until this one has decided; without a directory there is nothing to lock.
        with locked(f"{path}.lock") if os.path.isdir(directory) else contextlib.nullcontext():
            holder = read(path)
            changed = free(module, path, holder) if options["state"] == "free" else take(module, path, holder)
    except OSError as exc:
        module.fail_json(msg=f"{exc.filename or path}: {exc.strerror}; the lock of a {options['kind']} is kept there")
    module.exit_json(changed=changed, holder=holder)


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
    return {"id": "unreadable", "holder": "somebody", "since": "", "states": {}}


def take(module: AnsibleModule, path: str, holder: dict[str, Any]) -> bool:
    """Take the lock if that is requested; return whether it changes. Fails where another one holds it."""
    options, kind = module.params, module.params["kind"]
    if holder.get("id") == options["id"]:
        return False
    if holder and holder["id"] not in options["stale"]:
        by, first = holder.get("holder"), "run site.yml on this host and " if kind == "tune" else ""
        module.fail_json(
            msg=f"{path}: the {kind} {holder['id']}{f' of {by}' if by else ''} has been working here since "
            f"{holder.get('since')}; wait until it has ended, or run it again where it was interrupted. If it is known "
            f"to be dead, {first}take its lock over with -e {kind}_take_over={holder['id']}"
        )
    if options["state"] == "taken" and not module.check_mode:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        publish(path, json.dumps({"since": now, **{key: options[key] for key in ("id", "holder", "states")}}))
    return bool(options["state"] == "taken")


def free(module: AnsibleModule, path: str, holder: dict[str, Any]) -> bool:
    """Release the lock; return whether that changed anything."""
    if holder.get("id") != module.params["id"]:
        return False
    if not module.check_mode:
        os.unlink(path)
    return True


if __name__ == "__main__":
    main()
