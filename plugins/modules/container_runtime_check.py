#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_runtime_check
short_description: (internal) Check that a container engine works and can reach the accelerators
description:
  - Asks the engine for its version and checks that it can give the host's accelerators to containers.
  - Fails with advice where it cannot. Changes nothing and starts no container.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  engine:
    description: The engine to check.
    type: str
    choices: [docker, podman]
    required: true
  packager:
    description: The package format of this system.
    type: str
    choices: [deb, rpm]
    required: true
  stack:
    description: The stack of the host's accelerators, as C(cuda), C(rocm), C(cann) or C(cpu).
    type: str
    default: cpu
  count:
    description: Number of accelerators that containers must be able to use.
    type: int
    default: 0
  numbers:
    description: The numbers of these accelerators in the vendor's tools. By default counted from 0.
    type: list
    elements: int
    default: []
  partition:
    description: The MIG instances of each chip that plans are for, such as V(7x1g.10gb). By default whole chips.
    type: str
    default: ""
    version_added: 0.11.0
  toolkit:
    description: How containers reach the accelerators, as for M(baremetal.inference.container_runtime). With V(vendor)
      on C(cann) docker must have the Ascend Docker Runtime.
    type: str
    choices: [auto, vendor, none]
    default: auto
"""

EXAMPLES = "\n# roles/container_runtime/tasks/verify.yml\n"

import platform
from typing import Any

from ..module_utils.common.door import start_module
from ..module_utils.container_runtime.check_host import check
from ..module_utils.container_runtime.facts import RuntimePlanError
from ..module_utils.container_runtime.host import read_host


def main() -> None:
    module = start_module(DOCUMENTATION)

    def run(words: Any) -> tuple[int, str, str]:
        result: tuple[int, str, str] = module.run_command(list(words), handle_exceptions=True)
        return result

    host = read_host(module.params["packager"], run, module.get_bin_path)
    names = ("engine", "stack", "count", "toolkit", "partition", "numbers")
    engine, stack, count, toolkit, partition, numbers = (module.params[name] for name in names)
    try:
        fact, warnings = check(engine, stack, count, toolkit, host, module.get_bin_path, run, partition, numbers)
    except RuntimePlanError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}")
    for warning in warnings:
        module.warn(warning)
    module.exit_json(changed=False, ansible_facts={"accelerator_container_runtime": fact})


if __name__ == "__main__":
    main()
