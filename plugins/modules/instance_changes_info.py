#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: instance_changes_info
short_description: (internal) Report which vLLM instances of a host a run would change
description:
  - Renders the files of the instances on the controller as the role P(baremetal.inference.vllm#role) would, and
    compares contents, owners and modes with those on the host, and the links to the weights.
  - Can also return what M(baremetal.inference.instance_slot) returns without an instance, so that a rollout needs one
    module less for each host.
  - Changes nothing that is installed. Only hashes leave the controller, unless O(stage) names instances. The files of
    those become a slot on the host, so that M(baremetal.inference.instance_slot) can switch to them at once.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  files:
    description: The files of the instances, as the filter P(baremetal.inference.instance_files#filter) returns them.
    type: list
    elements: dict
    required: true
  digests:
    description: The sha256 of each file by its path; set by the action.
    type: dict
    default: {}
  links:
    description: Target of the link to the weights, by instance.
    type: dict
    default: {}
  stage:
    description: Instances whose new state is prepared as a slot. Its user and image must exist on the host.
    type: list
    elements: str
    default: []
  contents:
    description: The text of each file of these instances by its path; set by the action.
    type: dict
    default: {}
  states:
    description: Whether to return C(instances) and C(turn).
    type: bool
    default: false
  state_dir:
    description: Directory with a directory for each instance.
    type: path
    default: /var/lib/vllm
"""

EXAMPLES = "\n# roles/rollout/tasks/collect_changes.yml\n"

import grp
import hashlib
import os
import platform
import pwd
import stat
from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.slots.installed_host import Host
from ..module_utils.slots.restore_host import Engine
from ..module_utils.slots.stage import stage
from ..module_utils.slots.state import SlotError
from ..module_utils.slots.status_host import status_of_host


def main() -> None:
    module = start_module(DOCUMENTATION, secret=("digests", "contents"))
    found: dict[str, list[str]] = {}
    for entry in module.params["files"]:
        if differs(entry, module.params["digests"][entry["path"]]):
            for name in entry["restarts"]:
                found.setdefault(name, []).append(entry["path"])
    for name, target in module.params["links"].items():
        path = os.path.join(module.params["state_dir"], name, "model")
        if not os.path.islink(path) or os.readlink(path) != target:
            found.setdefault(name, []).append(path)
    try:
        staged = prepared(module)
        states = status_of_host(module.run_command, "/", {}, 2) if module.params["states"] else {}
    except (SlotError, OSError) as exc:
        module.fail_json(
            msg=f"{platform.node()}: the new state cannot be prepared: {exc}. Running instances are not touched"
        )
    module.exit_json(changed=False, changes=found, staged=staged, **states)


def prepared(module: AnsibleModule) -> dict[str, str]:
    """Return the slots of the instances to be staged. Raises SlotError, OSError."""
    options = module.params
    os.umask(0o022)
    host = Host("/", Engine(module.run_command).image_id)
    found = {}
    for name in options["stage"]:
        files = [entry for entry in options["files"] if name in entry["restarts"]]
        contents = {entry["path"]: options["contents"][entry["path"]] for entry in files}
        found[name] = stage(host, name, files, contents, options["links"][name], not module.check_mode)
    return found


def differs(entry: dict[str, Any], wanted: str) -> bool:
    """Return whether a file on the host differs from the one that the role would write."""
    try:
        state = os.lstat(entry["path"])
        with open(entry["path"], "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        owner, group = pwd.getpwuid(state.st_uid).pw_name, grp.getgrgid(state.st_gid).gr_name
    except (OSError, KeyError):
        return True
    mode = f"{stat.S_IMODE(state.st_mode):04o}"
    return (digest, mode, owner, group) != (wanted, *(str(entry[key]) for key in ("mode", "owner", "group")))


if __name__ == "__main__":
    main()
