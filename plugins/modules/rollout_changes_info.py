#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_changes_info
short_description: Put together what a rollout would change on a host
version_added: 0.6.0
description:
  - Compares the plans of a host's instances with what was kept of what they run, and says in words what changes.
  - In a rollback, instances that C(vllm_instances) does not name are left alone. Its values are not looked at.
  - Runs on the controller; no connection is made.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  kind:
    description:
      - V(change) brings what the inventory says, V(rollback) what was kept. V(journals) reads what O(undone) and
        O(returned) are made of, once for all hosts.
    type: str
    choices: [change, rollback, journals]
    default: change
  plans:
    description:
      - Plans of the instances, as M(baremetal.inference.serve_plan) returns them.
    type: dict
    default: {}
  slots:
    description:
      - What M(baremetal.inference.instance_slot) returned as C(instances).
    type: dict
    default: {}
  turn:
    description:
      - What it returned as C(turn).
    type: dict
    default: {}
  files:
    description:
      - What M(baremetal.inference.instance_changes_info) returned as C(changes).
    type: dict
    default: {}
  others:
    description:
      - What else changes, in words.
    type: list
    elements: str
    default: []
  cluster:
    description:
      - The host's cluster.
    type: str
    default: ""
  undo:
    description:
      - The rollout of this controller that is undone, or V(last) for the newest that has changed a host and was no
        rollback.
    type: str
    default: ""
  directory:
    description:
      - Where the journals of rollouts are.
    type: path
    default: ""
  undone:
    description:
      - What that rollout has changed on this host, of RV(undone); nothing else goes back.
    type: dict
    default: {}
  returned:
    description:
      - Whether a rollback that did not come to its end has brought this host back already, by RV(returned).
    type: bool
    default: false
  prompts:
    description:
      - How many chats measure the speed of an instance; with V(0) nothing is measured.
    type: int
    default: 0
  baseline:
    description:
      - V(now) measures every instance that runs a good state, V(record) only those without earlier figures.
    type: str
    choices: [record, now]
    default: record
  options:
    description:
      - How the rollout goes about it on this host.
    type: dict
    default: {}
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Put it together
  baremetal.inference.rollout_changes_info:
    plans: "{{ plan.plans }}"
    slots: "{{ slots.instances }}"
    files: "{{ compared.changes }}"
    options: {canaries: 1}
"""

RETURN = r"""
changes:
  description: By instance C(before), C(after), C(args), C(env) and C(files); in a rollback C(to), the slot of then.
  type: dict
  returned: success
concerned:
  description: Whether the host needs a turn.
  type: bool
  returned: success
interrupted:
  description: The rollout that was in the middle of this host, empty where none was.
  type: str
  returned: success
words:
  description: What changes, in one line.
  type: str
  returned: success
instances:
  description: The instances of the host.
  type: list
  elements: str
  returned: success
servers:
  description: Those of them that gateways know.
  type: list
  elements: str
  returned: success
measures:
  description: Instances whose speed is measured before they are changed.
  type: list
  elements: str
  returned: success
unkept:
  description: Instances that serve and of which nothing was kept that could be gone back to.
  type: list
  elements: str
  returned: success
states:
  description: By instance the state that an undo goes back to.
  type: dict
  returned: success
undone:
  description: What the rollout that is undone has changed, by host and instance the states C(before) and C(after).
  type: dict
  returned: with O(kind=journals)
returned:
  description: Without O(undo), the hosts that a rollback which did not come to its end has brought back.
  type: list
  elements: str
  returned: with O(kind=journals)
"""
