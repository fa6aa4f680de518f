#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_plan
short_description: Decide on the waves of a rollout
version_added: 0.6.0
description:
  - Takes what P(baremetal.inference.rollout#role) has seen of each host, and says which hosts change in which
    wave, what
    their gateways are, and who keeps the lock of each cluster.
  - Refuses what would leave a service with too few servers. All problems are one error.
  - Runs once, on the controller; no connection is made.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  hosts:
    description:
      - The hosts that were looked at.
    type: list
    elements: str
    required: true
  kind:
    description:
      - What is done with them.
    type: str
    choices: [change, rollback]
    default: change
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Decide on the waves
  baremetal.inference.rollout_plan:
    hosts: "{{ query('ansible.builtin.inventory_hostnames', 'inference') }}"
"""

RETURN = r"""
id:
  description: Name of the rollout.
  type: str
  returned: success
resumes:
  description: Rollouts of this controller that were interrupted, and that this one goes on from.
  type: list
  elements: str
  returned: success
left:
  description: Locks of those rollouts, each with its C(id), C(cluster) and the C(host) that keeps it.
  type: list
  elements: dict
  returned: success
stale:
  description: Rollouts of this controller that run no longer, whose locks are taken over.
  type: list
  elements: str
  returned: success
said:
  description: What is about to happen, in lines for people.
  type: list
  elements: str
  returned: success
waves:
  description: Each wave with its C(name), C(hosts) by cluster, and whether it is a C(canary).
  type: list
  elements: dict
  returned: success
hosts:
  description: What the turn of each host needs to know.
  type: dict
  returned: success
order:
  description: The hosts as a play takes them, each wave after the name that stands for the controller.
  type: raw
  returned: success
serial:
  description: The sizes of the waves, those names included.
  type: raw
  returned: success
"""
