#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: monitoring_targets
short_description: (internal) List what Prometheus scrapes, from the inventory
description:
  - Plans the instances of the group C(inference) and returns the files for C(file_sd) - the instances of vLLM, the node
    exporters of the hosts, and the gateways of the group C(gateways).
  - On hosts with C(site_monitoring), the node exporter is the one of P(baremetal.inference.monitoring#role). Gateways
    and mirrors have one only then.
  - Warns of exporters, instances and gateways that listen on a loopback address, where Prometheus cannot reach them.
  - Runs on the controller for all hosts at once and connects to no host, so use C(run_once).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  directory:
    description: Directory on the controller for the files, an absolute path.
    type: str
    required: true
  node_port:
    description: TCP port of the node exporters.
    type: int
    default: 9100
"""

EXAMPLES = "\n# playbooks/monitoring.yml\n"
