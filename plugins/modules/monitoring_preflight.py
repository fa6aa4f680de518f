#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: monitoring_preflight
short_description: (internal) Check a host before it gets a node exporter
description:
  - Checks that the host has the address, and that the port is free or the exporter's own.
  - Returns whether the exporter is installed.
  - Changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  program:
    description: Path of the exporter.
    type: path
    required: true
  installed_by_site:
    description: Whether the site installs the exporter itself, so that it must exist.
    type: bool
    default: false
  unit:
    description: Unit of systemd that may have the port already.
    type: str
    required: true
  listens:
    description: Addresses to listen on, each with the option of the role that sets it.
    type: dict
    required: true
  port:
    description: TCP port that the exporter will listen on.
    type: int
    required: true
"""

EXAMPLES = "\n# roles/monitoring/tasks/preflight.yml\n"

import os
import platform

from ..module_utils.common.door import start_module
from ..module_utils.common.own_addresses_host import listen_problem
from ..module_utils.common.repositories_host import repository_problem
from ..module_utils.vllm.ports_host import listeners


def main() -> None:
    module = start_module(DOCUMENTATION)
    program = module.params["program"]
    installed = os.access(program, os.X_OK)
    problem = listen_problem(module.params["listens"]) or clash(module.params["port"], module.params["unit"])
    if module.params["installed_by_site"] and not installed:
        problem = (
            f"monitoring_node_program: {program} is no program on this host; install it there, or leave "
            "monitoring_node_program empty for the package of the distribution"
        )
    elif not installed and module.check_mode:
        # A run without check mode asks them when it installs, which is its first change.
        unreachable = repository_problem(["the node exporter"])
        problem = problem or (unreachable and f"{platform.node()}: {unreachable}")
    if problem:
        module.fail_json(msg=problem)
    module.exit_json(changed=False, installed=installed)


def clash(port: int, unit: str) -> str | None:
    """Return which process has the port, None if it is free or the exporter's own."""
    for found in listeners({port}):
        if found.unit == unit:
            continue
        return (
            f"monitoring_node_port {port} is in use by {found.who}; stop that, or give monitoring_node_port another "
            "number. A host that has a node exporter already does not need the role monitoring"
        )
    return None


if __name__ == "__main__":
    main()
