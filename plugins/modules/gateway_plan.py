#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: gateway_plan
short_description: (internal) Decide what a gateway serves
description:
  - Plans the instances of the hosts of a cluster as M(baremetal.inference.render_plans) does, and combines all
    instances and replicas of a name into one service.
  - Reads the key files of the clients on the controller, and returns only the sha256 of each key.
  - Runs on the controller and connects to no host. One error lists all problems.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  cluster:
    description:
      - Name of the cluster; its hosts have it in their variable C(cluster), or are in the group C(cluster_NAME).
      - If empty, the cluster of the gateway itself.
    type: str
    default: ""
  backends:
    description: Hosts and groups to serve instead of those of the cluster.
    type: list
    elements: str
    default: []
  min_available:
    description: How many servers each service must have.
    type: int
    default: 1
  port:
    description: TCP port of the services without a port in O(services).
    type: int
    default: 443
  services:
    description: A mapping of services to their C(port), C(tasks), C(affinity) and C(places).
    type: raw
    default: {}
  models:
    description: A mapping of model names to C(services), with their shares of the requests, and C(fallback).
    type: raw
    default: {}
  clients:
    description: A mapping of clients to C(key_file), C(rate), C(concurrent) and C(models).
    type: raw
    default: {}
  read_keys:
    description: Whether the key files of clients are read; without them only everything else is checked.
    type: bool
    default: true
  teams:
    description: A mapping of teams to C(class), C(tokens_per_minute), C(tokens_per_day) and C(tokens_per_month).
    type: raw
    default: {}
  admission:
    description: Whether requests beyond the places of the servers wait at the gateway, by class and team.
    type: str
    choices: ["off", "shadow", "auto"]
    default: "off"
  paths:
    description: Paths that every service allows in addition to those of its tasks, each with C(path) and C(methods).
    type: raw
    default: []
  open:
    description: Serve clients without a key.
    type: bool
    default: false
  listen:
    description: Address that the gateway listens on.
    type: str
    default: 0.0.0.0
  tls:
    description: Source of the certificate.
    type: str
    choices: ["own", "files", "off"]
    default: own
  certificate:
    description: The certificate on the controller, which only V(files) for O(tls) needs.
    type: str
    default: ""
  certificate_key:
    description: The key of O(certificate).
    type: str
    default: ""
  insecure:
    description: Allow V(off) for O(tls) beyond the loopback address.
    type: bool
    default: false
  names:
    description: Names and addresses that clients use, in addition to those of the host.
    type: list
    elements: str
    default: []
  stats_port:
    description: TCP port of the gateway's own health and metrics.
    type: int
    default: 8404
  agent_port:
    description: TCP port of the agent on the loopback address.
    type: int
    default: 8405
  tokens:
    description: Count the tokens of each client.
    type: bool
    default: false
  has_secret:
    description: Whether there is a secret between gateways and instances.
    type: bool
    default: true
  tokens_port:
    description: TCP port of their counters on the loopback address.
    type: int
    default: 8406
  max_body:
    description: Largest body of a request in MiB, 0 for no limit.
    type: int
    default: 64
  error_limit:
    description: Answers 5xx after which the agent tests an engine, 0 for never.
    type: int
    default: 5
  inspect_kib:
    description: How many KiB of a body are read to find the model, where services share a port, and for their affinity.
    type: int
    default: 64
  address:
    description: Address with a prefix length that several gateways share.
    type: str
    default: ""
  interface:
    description: Network interface of the shared address.
    type: str
    default: ""
  peers:
    description: Group of the gateways that may share an address.
    type: str
    default: gateways
"""

EXAMPLES = "\n# roles/gateway/tasks/plan.yml\n"
