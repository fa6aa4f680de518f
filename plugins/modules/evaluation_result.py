#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: evaluation_result
short_description: (internal) Keep the result of an evaluated task, or report and compare all results of a host
description:
  - With O(answers) it makes a result file of what a host has sent. Without, it shows the results of the host as a
    table, and fails where a task is worse than in O(compare).
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.unsupported
options:
  answers:
    description: The fetched file with the answers of one task. It is removed when the result is kept.
    type: path
    default: ""
  settings:
    description: The entry of C(pending) that was asked.
    type: dict
    default: {}
  directory:
    description: Directory of the results.
    type: path
    default: ""
  compare:
    description: Directory of an earlier run to compare with.
    type: path
    default: ""
  evidence:
    description:
      - An evidence file on the controller that gets the scores. It must be of the same model and version of vLLM.
    type: path
    default: ""
  instances:
    description: Instances to report.
    type: list
    elements: str
    default: []
  tasks:
    description: Tasks to report.
    type: list
    elements: str
    default: []
"""

EXAMPLES = "\n# playbooks/tasks/evaluate.yml\n"
