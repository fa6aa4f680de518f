#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: evaluation_plan
short_description: (internal) Decide which instances of a host are asked what
description:
  - Returns the tasks of each instance that have no result yet, and the lock of the tool that fits the host.
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  tasks:
    description: The tasks, as M(baremetal.inference.evaluation_request) returns them.
    type: list
    elements: dict
    required: true
  directory:
    description: Directory of the results on the controller.
    type: path
    required: true
  compare:
    description: Directory of an earlier run to compare with.
    type: path
    default: ""
  instances:
    description: Names of instances; all of the host when empty.
    type: list
    elements: str
    default: []
  statuses:
    description: What M(baremetal.inference.instance_slot) returns as C(instances).
    type: dict
    required: true
  python_version:
    description: Version of the host's Python, such as V(3.12).
    type: str
    required: true
  machine:
    description: The host's machine, as uname names it.
    type: str
    required: true
  needs_environment:
    description: Whether the host needs an environment of O(tool).
    type: bool
    default: true
  tool:
    description: The tool that asks the questions.
    type: str
    choices: [lm-eval, gpt-oss, aisbench]
    default: lm-eval
"""

EXAMPLES = "\n# playbooks/tasks/evaluate_check.yml\n"
