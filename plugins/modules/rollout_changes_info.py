#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: rollout_changes_info
short_description: (internal) Describe what a rollout would change on a host
description:
  - Compares the plans of a host's instances with the kept states of what they run, and describes the changes.
  - In a rollback, instances that C(vllm_instances) does not name stay unchanged. Its values are not rendered.
  - Runs on the controller; no connection is made.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  kind:
    description: V(change) applies the inventory, V(rollback) restores kept states. V(journals) reads O(undone) and
      O(returned) from the journals, once for all hosts.
    type: str
    choices: [change, rollback, journals]
    default: change
  plans:
    description: Plans of the instances, as M(baremetal.inference.serve_plan) returns them.
    type: dict
    default: {}
  slots:
    description: What M(baremetal.inference.instance_slot) returned as C(instances).
    type: dict
    default: {}
  turn:
    description: What that module returned as C(turn).
    type: dict
    default: {}
  files:
    description: What M(baremetal.inference.instance_changes_info) returned as C(changes).
    type: dict
    default: {}
  others:
    description: What is installed besides the instances.
    type: list
    elements: str
    default: []
  undo:
    description: The rollout of this controller to undo, or V(last) for the newest one that changed a host, rollbacks
      excepted.
    type: str
    default: ""
  directory:
    description: Directory of the journals.
    type: path
    default: ""
  undone:
    description: What that rollout changed on this host, from C(undone); nothing else goes back.
    type: dict
    default: {}
  returned:
    description: Whether an interrupted rollback has already finished this host, from C(returned).
    type: bool
    default: false
  prompts:
    description: How many chats measure the speed of an instance; with V(0) nothing is measured.
    type: int
    default: 0
  baseline:
    description: V(now) measures every instance that runs a good state, V(record) only those without earlier figures.
    type: str
    choices: [record, now]
    default: record
  options:
    description: The options of the rollout on this host.
    type: dict
    default: {}
"""

EXAMPLES = "\n# roles/rollout/tasks/collect_changes.yml\n"
