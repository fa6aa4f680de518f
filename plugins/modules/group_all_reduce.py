#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: group_all_reduce
short_description: (internal) Add numbers up over all chips of a group, with the Python of its instance
description:
  - Runs a program on this host while the other hosts of the group do the same, before the instance starts.
    It uses the same libraries as vLLM (gloo, NCCL, RCCL or HCCL), in the same environment, at the same addresses, and
    ends by itself where a host is missing or hangs.
  - That it fails is not an error of the module. M(baremetal.inference.group_report) judges the results of all hosts.
  - Leaves nothing on the host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  argv:
    description: The words that run Python and make it read the program from its standard input.
    type: list
    elements: str
    required: true
  stop:
    description: The words that end what outlives the command, such as a container.
    type: list
    elements: str
    default: []
  environment:
    description: The variables of the instance.
    type: dict
    default: {}
  user:
    description: The user that the program runs as. Empty for the user of this task.
    type: str
    default: ""
  arguments:
    description: The options of the program.
    type: dict
    required: true
"""

EXAMPLES = "\n# roles/vllm/tasks/all_reduce.yml\n"

import inspect
import json

from ..module_utils.common.door import start_module
from ..module_utils.vllm import all_reduce_program_host
from ..module_utils.vllm.all_reduce_host import Command, run_all_reduce


def main() -> None:
    module = start_module(DOCUMENTATION)
    if module.check_mode:
        module.exit_json(changed=False, problem="", phase="", missing=[], gb_per_s=None, versions={}, networks=[])
    program, options = inspect.getsource(all_reduce_program_host), module.params["arguments"]
    variables = {name: str(value) for name, value in module.params["environment"].items()}
    command = Command(module.params["argv"], variables, module.params["user"], module.params["stop"])
    try:
        found = run_all_reduce(command, program, json.dumps(options), float(options["seconds"]))
    except (OSError, KeyError) as exc:
        found = {"problem": f"it cannot be started: {exc}", "phase": "load", "missing": [], "gb_per_s": None}
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
