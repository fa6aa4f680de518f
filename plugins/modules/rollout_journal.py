#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: rollout_journal
short_description: (internal) Keep the journal of a rollout
description:
  - Adds lines to the journal of the rollout that the play has planned and registered on localhost as
    C(rollout_plan). A line is on the disk before the step that it announces begins.
  - Only writes. M(baremetal.inference.rollout_orders) returns what comes next.
  - Runs on the controller; no connection is made.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  state:
    description: V(begun) creates the journal, V(waving) begins a wave, V(waved) ends it, V(stopped) notes why no
      further wave comes, V(ended) closes the journal.
    type: str
    choices: [begun, noted, waving, waved, stopped, ended]
    default: noted
  step:
    description: The step of the host's update that begins.
    type: str
    default: ""
  detail:
    description: What to note about it.
    type: str
    default: ""
  failed:
    description: The result of a failed task, whose message becomes the detail.
    type: raw
    default: {}
  gates:
    description: Results of M(baremetal.inference.instance_gate).
    type: list
    elements: dict
    default: []
  baselines:
    description: The speed of each instance before the change, as M(baremetal.inference.rollout_orders) returns it.
    type: dict
    default: {}
  kept:
    description: Results of M(baremetal.inference.instance_slot) at the end of an update, which a later undo reads.
    type: list
    elements: dict
    default: []
  gateways:
    description: Results of M(baremetal.inference.gateway_server), whose counters are noted. With O(state=waved) they
      say also whether a host that cannot be reached is in service.
    type: list
    elements: dict
    default: []
  wave:
    description: Number of the wave, from 0.
    type: int
    default: 0
"""

EXAMPLES = "\n# roles/rollout/tasks/apply.yml\n"
