#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: acceptance_report
short_description: (internal) Judge what was measured on a host, and write result and page
description:
  - Compares figures, counters and answers with what is expected, and writes a JSON file and an HTML page.
  - Findings are not an error of the module.
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  dir:
    description: Directory of the results on the controller.
    type: path
    required: true
  minutes:
    description: How long the burn-in took.
    type: raw
    required: true
  accelerator:
    description: The fact C(accelerator_detected).
    type: dict
    default: {}
  expected:
    description: The figures of each chip, as M(baremetal.inference.acceptance_plan) returns them.
    type: dict
    default: {}
  limits:
    description: The minimum for storage, network and benchmarks, as M(baremetal.inference.acceptance_plan) returns it.
    type: dict
    default: {}
  driver:
    description: Result of the state module of the host's stack.
    type: dict
    default: {}
  burn_in:
    description: Result of M(baremetal.inference.acceptance_burn_in).
    type: dict
    default: {}
  storage:
    description: Result of M(baremetal.inference.acceptance_storage).
    type: dict
    default: {}
  network:
    description: Result of M(baremetal.inference.acceptance_network).
    type: dict
    default: {}
  chats:
    description: Results of M(baremetal.inference.endpoint), one for each instance.
    type: list
    elements: dict
    default: []
  benches:
    description: Results of M(baremetal.inference.acceptance_bench), one for each instance that answered a chat.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = "\n# playbooks/accept.yml\n"
