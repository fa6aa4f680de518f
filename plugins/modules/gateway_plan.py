#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_plan
short_description: Decide what a gateway serves
version_added: 0.5.0
description:
  - Plans the instances of the hosts of a cluster as M(baremetal.inference.render_plans) does, and makes one service of
    all instances and replicas of a name.
  - Reads the files with the keys of clients on the controller. Only the sha256 of a key is returned.
  - Runs on the controller and touches no host. All problems are one error.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  cluster:
    description:
      - Name of the cluster; its hosts are in the group C(cluster_NAME).
    type: str
    default: ""
  backends:
    description:
      - Hosts and groups whose instances are served instead.
    type: list
    elements: str
    default: []
  min_available:
    description:
      - How many servers each service must have.
    type: int
    default: 1
    aliases: [backends_min]
    version_added: 0.7.0
  port:
    description:
      - TCP port of a service that O(services) gives none.
    type: int
    default: 443
  services:
    description:
      - A mapping of services to their C(port).
    type: raw
    default: {}
  clients:
    description:
      - A mapping of clients to C(key_file), C(rate) and C(concurrent).
    type: raw
    default: {}
  paths:
    description:
      - Paths that are let through beside the usual ones, each with C(path) and C(methods).
    type: raw
    default: []
  open:
    description:
      - Ask nobody for a key.
    type: bool
    default: false
  listen:
    description:
      - Address that the gateway listens on.
    type: str
    default: 0.0.0.0
  tls:
    description:
      - Where its certificate comes from.
    type: str
    choices: ["own", "files", "off"]
    default: own
  insecure:
    description:
      - Allow V(off) for O(tls) beyond the loopback address.
    type: bool
    default: false
  names:
    description:
      - Names and addresses that clients ask for beside the host's own.
    type: list
    elements: str
    default: []
  stats_port:
    description:
      - TCP port of the gateway's own health and metrics.
    type: int
    default: 8404
  agent_port:
    description:
      - TCP port of the agent on the loopback address.
    type: int
    default: 8405
  address:
    description:
      - Address with a prefix length that several gateways share.
    type: str
    default: ""
  interface:
    description:
      - Network interface that the shared address belongs on.
    type: str
    default: ""
  peers:
    description:
      - Group of the gateways that may share an address.
    type: str
    default: gateways
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Decide what this gateway serves
  baremetal.inference.gateway_plan:
    cluster: fra1
    clients:
      reports:
        key_file: /etc/keys/reports.key
        rate: 60
  register: plan
"""

RETURN = r"""
services:
  description: Name, port, models and servers of each service.
  type: list
  elements: dict
  returned: success
paths:
  description: What is let through, as HAProxy compares it.
  type: list
  elements: dict
  returned: success
bind:
  description: The address to listen on as it stands before a port.
  type: str
  returned: success
agent:
  description: The servers that the agent watches, by address and port.
  type: dict
  returned: success
peers:
  description: What keepalived is told of the gateways with the shared address.
  type: dict
  returned: success
clients:
  description: The clients as M(baremetal.inference.gateway_keys) takes them.
  type: list
  elements: dict
  returned: success
names:
  description: Names and addresses that a certificate has to have.
  type: list
  elements: str
  returned: success
"""
