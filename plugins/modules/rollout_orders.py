#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: rollout_orders
short_description: (internal) Return what a rollout orders next
description:
  - Reads the rollout that the play has planned and registered on localhost as C(rollout_plan), and its journal.
    M(baremetal.inference.rollout_journal) writes that journal.
  - Runs on the controller; no connection is made and nothing is written.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  of:
    description: What to return the orders of. V(wave) is the wave that has just ended, V(rollout) the whole rollout
      after its end.
    type: str
    choices: [host, wave, rollout]
    default: host
  detail:
    description: The beginning of the reason for a failure.
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
  slots:
    description: What M(baremetal.inference.instance_slot) returned as C(instances); the records are the baselines.
    type: dict
    default: {}
  measured:
    description: Results of M(baremetal.inference.instance_gate) from before the change, where no record was kept.
    type: list
    elements: dict
    default: []
  wave:
    description: Number of the wave, from 0.
    type: int
    default: 0
"""

EXAMPLES = "\n# roles/rollout/tasks/apply.yml\n"
