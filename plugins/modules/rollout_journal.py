#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_journal
short_description: (internal) Keep the journal of a rollout
description:
  - Adds lines to the journal of the rollout that the play has planned and registered on localhost as
    C(rollout_plan). A line is on the disk before the step that it announces begins.
  - Decides after a wave whether the rollout goes on, and reports its result at the end.
  - Runs on the controller; no connection is made.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
options:
  state:
    description:
      - V(begun) creates the journal, V(waving) begins a wave, V(waved) ends it, V(stopped) notes why no further wave
        comes, V(ended) closes the journal.
    type: str
    choices: [begun, noted, waving, waved, stopped, ended]
    default: noted
  step:
    description:
      - The step of the host's update that begins.
    type: str
    default: ""
  detail:
    description:
      - What to note about it.
    type: str
    default: ""
  failed:
    description:
      - The result of a failed task, whose message becomes the detail.
    type: raw
    default: {}
  gates:
    description:
      - Results of M(baremetal.inference.instance_gate).
    type: list
    elements: dict
    default: []
  slots:
    description:
      - What M(baremetal.inference.instance_slot) returned as C(instances); the records are the baselines.
    type: dict
    default: {}
  measured:
    description:
      - Results of M(baremetal.inference.instance_gate) from before the change, where no record was kept.
    type: list
    elements: dict
    default: []
  baselines:
    description:
      - The speed of each instance before the change, as this module returned it.
    type: dict
    default: {}
  kept:
    description:
      - Results of M(baremetal.inference.instance_slot) at the end of an update, which a later undo reads.
    type: list
    elements: dict
    default: []
  gateways:
    description:
      - Results of M(baremetal.inference.gateway_server), whose counters are noted. With O(state=waved) they say also
        whether a host that cannot be reached is in service.
    type: list
    elements: dict
    default: []
  wave:
    description:
      - Number of the wave, from 0.
    type: int
    default: 0
"""

EXAMPLES = "# roles/rollout/tasks/apply.yml"

RETURN = r"""
journal:
  description: Path of the journal.
  type: str
  returned: success
turn:
  description: The plan of this host.
  type: dict
  returned: success
mark:
  description: C(id), C(kind), C(user) and C(controller) of the rollout, written to the host while it is being updated.
  type: dict
  returned: success
detail:
  description: What was noted as the detail of the step.
  type: str
  returned: success
short:
  description: The detail in one line for people; a long one is cut.
  type: str
  returned: success
baselines:
  description: The speed before the change, by instance.
  type: dict
  returned: success
figures:
  description: The speed now, by instance.
  type: dict
  returned: success
stop:
  description: With O(state=waved), why the rollout stops; empty where it goes on.
  type: str
  returned: O(state=waved) or O(state=stopped)
result:
  description: With O(state=ended), C(done), C(stopped) or C(failed).
  type: str
  returned: O(state=ended)
message:
  description: With O(state=ended), the result in words.
  type: str
  returned: O(state=ended)
"""
