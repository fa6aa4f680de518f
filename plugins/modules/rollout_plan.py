#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: rollout_plan
short_description: (internal) Plan the waves of a rollout
description:
  - Plans which hosts change in which wave, from what was collected on each host, and finds their gateways and the host
    that keeps the lock of each cluster.
  - Refuses a plan that leaves a service with too few servers. Reports all problems in one error.
  - Runs once, on the controller; no connection is made.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  hosts:
    description: The hosts that were checked.
    type: list
    elements: str
    required: true
  kind:
    description: Whether the hosts change or go back.
    type: str
    choices: [change, rollback]
    default: change
"""

EXAMPLES = "\n# roles/rollout/tasks/plan.yml\n"
