#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateways_info
short_description: List the gateways that send requests to hosts
version_added: 0.7.0
description:
  - Reads from the inventory which gateways send requests to each host, by C(gateway_cluster) and C(gateway_backends) of
    the gateways, as the role P(baremetal.inference.gateway#role) does.
  - Runs on the controller and connects to no host, so use C(run_once).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  hosts:
    description: The hosts.
    type: list
    elements: str
    required: true
  group:
    description: The group of the gateways.
    type: str
    default: gateways
  instance:
    description: An instance that spans several of these hosts. Then only its hosts are looked at.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: List the gateways of the hosts of this play
  baremetal.inference.gateways_info:
    hosts: "{{ ansible_play_hosts_all }}"
  run_once: true
  register: found
"""

RETURN = r"""
gateways:
  description: The gateways of each host; an empty list when the inventory has no group of gateways. The other hosts of
    instances that span several are included.
  type: dict
  returned: success
  sample: {gpu-a-01: [gw1, gw2]}
hosts:
  description: The hosts behind each gateway; gateways without any of these hosts are left out. With O(instance) the
    lists are empty.
  type: dict
  returned: success
  sample: {gw1: [gpu-a-01], gw2: [gpu-a-01]}
groups:
  description: The instances behind each gateway that span several hosts, one of them in O(hosts), each as the names
    that its servers may have. The option O(baremetal.inference.gateway_server#module:groups) takes such a list.
  type: dict
  returned: success
  sample: {gw1: [[gpu-a-01--big, gpu-a-02--big]]}
instances:
  description: The same instances with their hosts, the head first.
  type: list
  elements: dict
  returned: success
  sample: [{instance: big, hosts: [gpu-a-01, gpu-a-02]}]
clusters:
  description:
    - The cluster of each host, from its variable C(cluster) or its group C(cluster_NAME); an empty string without one.
  type: dict
  returned: success
  sample: {gpu-a-01: fra1}
user:
  description: The person who runs the playbook on the controller, who owns a drain. With sudo, the user before it.
  type: str
  returned: success
  sample: alice
"""
