#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: provisioner_preflight
short_description: (internal) Check a host before it becomes a provisioner
description:
  - Checks that the host has the address on which Ironic and nginx will listen.
  - Changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  listens:
    description: Addresses to listen on, each with the option of the role that sets it.
    type: dict
    required: true
"""

EXAMPLES = "\n# roles/provisioner/tasks/preflight.yml\n"

from ..module_utils.common.door import start_module
from ..module_utils.common.own_addresses_host import listen_problem


def main() -> None:
    module = start_module(DOCUMENTATION)
    problem = listen_problem(module.params["listens"], may_be_all=False)
    if problem:
        module.fail_json(msg=problem)
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
