#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: removal
short_description: (internal) Remove from a host what a plan lists
description:
  - Stops the units of instances, then removes their files. Those by which a later run recognises an instance are
    removed last. If a run is killed, the next one finishes.
  - Weights and environments lose their names before their files go, so nothing starts from a part of them. Anything
    that a process has begun to use since the plan was made is kept.
extends_documentation_fragment:
  - baremetal.inference.attributes.full
  - baremetal.inference.removal
options:
  entries:
    description: The C(entries) of the plan.
    type: list
    elements: dict
    required: true
    suboptions:
      kind:
        description: What it is.
        type: str
        required: true
      name:
        description: Its name.
        type: str
        required: true
      target:
        description: Its path, unit or reference.
        type: str
        required: true
      size:
        description: Its bytes.
        type: int
        default: 0
      detail:
        description: More about it.
        type: str
        default: ""
  everything:
    description: Also remove the directories of models, environments and encodings in which nothing is left.
    type: bool
    default: false
"""

EXAMPLES = "\n# playbooks/remove.yml\n"

import platform
from typing import Any, Iterable

from ..module_utils.common.door import start_module
from ..module_utils.removal.inspect_host import Inspection
from ..module_utils.removal.model import SITE_ARGUMENTS, Item, RemovalError, describe, format_bytes, site_of
from ..module_utils.removal.remove_host import Removal
from ..module_utils.slots.state import SlotError


def main() -> None:
    module = start_module(DOCUMENTATION, others=SITE_ARGUMENTS)
    params = module.params
    items = [Item(**entry) for entry in params["entries"]]
    if module.check_mode:
        module.exit_json(changed=bool(items), **result_of(items, []))
    removal = Removal(Inspection(params["root"], site_of(params), module.run_command), module.run_command)
    try:
        removal.remove(items)
        if params["everything"]:
            removal.tidy()
    except (RemovalError, SlotError, OSError) as exc:
        done = f"; removed before: {', '.join(map(describe, removal.removed)) or 'nothing'}. Run this again afterwards"
        module.fail_json(msg=f"{platform.node()}: {exc}{done}", **result_of(removal.removed, removal.kept))
    module.exit_json(changed=bool(removal.removed), **result_of(removal.removed, removal.kept))


def result_of(items: Iterable[Item], kept: list[str]) -> dict[str, Any]:
    """Return the values that the module returns."""
    lines = [describe(item) for item in items]
    size = sum(item.size for item in items)
    return {
        "removed": lines,
        "kept": kept,
        "bytes": size,
        "freed": format_bytes(size),
        "diff": {"before": "".join(f"{line}\n" for line in lines), "after": ""},
    }


if __name__ == "__main__":
    main()
