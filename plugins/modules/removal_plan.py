#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: removal_plan
short_description: (internal) List what a removal takes from a host, and refuse what is in use
description:
  - Inspects the host and decides what goes. Changes nothing.
  - Fails when something that is named is in use, when its name looks misspelt, and while a rollout is at work on the
    host.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.removal
options:
  kind:
    description: What to remove.
    type: str
    choices: [instance, model, environment, image, everything]
    required: true
  names:
    description: Names of instances, models (C(ORGANISATION/NAME), or with C(@REVISION) one revision), releases or
      environments, or images. Not used for V(everything).
    type: list
    elements: str
    default: []
  declared:
    description: The instances that the inventory declares for the host.
    type: list
    elements: str
    default: []
  groups:
    description: The groups of the host.
    type: list
    elements: str
    default: []
  models:
    description: Models that the inventory still needs on the host.
    type: list
    elements: str
    default: []
  revisions:
    description: Revisions of models that it still needs.
    type: list
    elements: str
    default: []
  environments:
    description: Paths of the environments that it still needs.
    type: list
    elements: str
    default: []
  images:
    description: Images that it still needs.
    type: list
    elements: str
    default: []
  also:
    description: What goes with V(everything) only where it is asked for, the packages and settings of the driver or of
      the container engine.
    type: list
    elements: str
    choices: [driver, container_engine]
    default: []
  shared:
    description: Whether other hosts use O(weights_root) too, as the option C(weights_shared) of the role
      P(baremetal.inference.weights#role).
    type: str
    choices: [auto, "yes", "no"]
    default: auto
"""

EXAMPLES = "\n# playbooks/remove.yml\n"

import platform
from typing import Any

from ..module_utils.common.door import AnsibleModule, start_module
from ..module_utils.removal.inspect_host import Inspection
from ..module_utils.removal.model import (
    INSTANCE,
    SITE_ARGUMENTS,
    RemovalError,
    Request,
    Use,
    describe,
    format_bytes,
    site_of,
)
from ..module_utils.removal.plan import decide
from ..module_utils.slots.state import SlotError

SHARED = {"auto": None, "yes": True, "no": False}


def main() -> None:
    module = start_module(DOCUMENTATION, others=SITE_ARGUMENTS)
    try:
        result = plan(module)
    except (RemovalError, SlotError, OSError) as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}")
    module.exit_json(**result)


def plan(module: AnsibleModule) -> dict[str, Any]:
    """Return the module's result. Raises RemovalError."""
    params = module.params
    contents = Inspection(params["root"], site_of(params), module.run_command).read(params["kind"], params["also"])
    request = Request(
        params["kind"],
        tuple(params["names"]),
        tuple(params["declared"]),
        planned_uses(params),
        tuple(params["groups"]),
        SHARED[params["shared"]],
        tuple(params["also"]),
    )
    found = decide(request, contents)
    # A host without instances has none that a name could be mistaken for: a second run ends well.
    others = {*contents.instances, *request.declared}
    unknown = {*found.absent} - {*request.declared} if request.kind == INSTANCE and others else set()
    size = sum(item.size for item in found.items)
    return {
        "changed": False,
        "entries": [item.as_dict() for item in found.items],
        "instances": [item.name for item in found.items if item.kind == INSTANCE],
        "lines": [*map(describe, found.items), f"together {format_bytes(size)}"] if found.items else ["nothing"],
        "kept": [*found.kept, *found.absent.values()],
        "absent": dict(found.absent),
        "mistaken": list(found.mistaken),
        "present": [name for name in request.names if name not in found.absent or name in request.declared],
        "known": [name for name in request.names if name not in unknown],
        "bytes": size,
    }


def planned_uses(params: dict[str, Any]) -> tuple[Use, ...]:
    """Return what the inventory still needs."""
    by = "the inventory (vllm_instances or weights_models)"
    return (
        *(Use(by, model=name) for name in (*params["models"], *params["revisions"])),
        *(Use(by, venv=path) for path in params["environments"]),
        *(Use(by, image=name) for name in params["images"]),
    )


if __name__ == "__main__":
    main()
