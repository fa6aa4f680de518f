#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

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

RETURN = r"""
turn:
  description: The plan of this host.
  type: dict
  returned: O(of=host)
mark:
  description: C(id), C(kind), C(user) and C(controller) of the rollout, written to the host while it is being updated.
  type: dict
  returned: O(of=host)
detail:
  description: O(detail), and the message of O(failed).
  type: str
  returned: O(of=host)
short:
  description: The same in one line for people; a long one is cut.
  type: str
  returned: O(of=host)
baselines:
  description: The speed before the change, by instance.
  type: dict
  returned: O(of=host)
figures:
  description: The speed now, by instance.
  type: dict
  returned: O(of=host)
stop:
  description: Why the rollout stops; empty where it goes on.
  type: str
  returned: O(of=wave)
journal:
  description: Path of the journal.
  type: str
  returned: O(of=rollout)
result:
  description: C(done), C(stopped) or C(failed).
  type: str
  returned: O(of=rollout)
message:
  description: The result in words.
  type: str
  returned: O(of=rollout)
"""
