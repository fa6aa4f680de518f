#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateways_of
short_description: Say which gateways stand in front of hosts
version_added: 0.6.0
description:
  - Tells from the inventory which gateways send requests to each host, by C(gateway_cluster) and C(gateway_backends) of
    the gateways as the role P(baremetal.inference.gateway#role) reads them.
  - Runs on the controller and touches no host, so give it C(run_once).
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
      - The hosts to ask for.
    type: list
    elements: str
    required: true
  group:
    description:
      - The group of the gateways.
    type: str
    default: gateways
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: See who sends requests to the hosts of this play
  baremetal.inference.gateways_of:
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: asked
"""

RETURN = r"""
gateways:
  description: The gateways of each host; none where there is no group of them.
  type: dict
  returned: success
  sample: {gpu-a-01: [gw1, gw2]}
hosts:
  description: Those of the hosts that stand behind each gateway; gateways without any are left out.
  type: dict
  returned: success
  sample: {gw1: [gpu-a-01], gw2: [gpu-a-01]}
clusters:
  description: The cluster of each host, its variable C(cluster); an empty text without one.
  type: dict
  returned: success
  sample: {gpu-a-01: fra1}
"""
