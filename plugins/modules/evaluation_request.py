#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: evaluation_request
short_description: (internal) Check the tasks of an evaluation and prepare their questions
description:
  - Reads the definitions of tasks and their data, checks the data against its sha256, and writes the questions below
    O(directory).
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  tasks:
    description: Names of tasks, a list or a text with commas.
    type: raw
    required: true
  task_path:
    description: Directories of the site's own tasks, searched before the bundled ones.
    type: list
    elements: path
    default: []
  data:
    description: The site's data files by task, each with C(sha256) and C(file) or C(url).
    type: dict
    default: {}
  request:
    description: Parameters of each request, such as C(reasoning_effort).
    type: dict
    default: {}
  samples:
    description: How many questions of each task are asked; all of them with 0.
    type: int
    default: 0
  directory:
    description: Directory of the results on the controller.
    type: path
    required: true
  compare:
    description: Directory of an earlier run to compare with.
    type: path
    default: ""
  tool:
    description: The tool that asks the questions, V(lm-eval), V(gpt-oss) or V(aisbench).
    type: str
    default: lm-eval
"""

EXAMPLES = "\n# playbooks/tasks/evaluate_check.yml\n"
