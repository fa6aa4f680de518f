#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: group_report
short_description: (internal) Judge what the hosts of a group have found out about each other
description: Runs on the controller, for each host of a group. It reads what M(baremetal.inference.group_links) and
  M(baremetal.inference.group_all_reduce) returned on all of them, fails with the pairs and hosts that cannot work
  together, and warns of what slows them down.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  groups:
    description: The groups of this host, by instance.
    type: dict
    required: true
  what:
    description: Whose results to judge.
    type: str
    choices: [links, all_reduce]
    required: true
  port:
    description: The port that was tried.
    type: int
    default: 0
  fabric:
    description: The variable C(vllm_fabric); its C(hca) must be active devices.
    type: dict
    default: {}
  min_gb_per_s:
    description: The minimum of an all-reduce; 0 requires none.
    type: float
    default: 0
"""

EXAMPLES = "\n# roles/vllm/tasks/all_reduce.yml\n"
