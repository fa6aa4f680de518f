#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: playbook_options
short_description: (internal) Check the options of a playbook before a host is contacted
description:
  - Fails for an extra variable that is a misspelt option of a playbook, and for a value of another kind.
  - Names the nearest option.
  - Runs on the controller and connects to no host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  roles:
    description: Roles whose options are checked too, among the variables of the host.
    type: list
    elements: str
    default: []
"""

EXAMPLES = "\n# roles/rollout/tasks/preflight.yml\n"
