#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: tune_plan
short_description: (internal) Check and begin a tune of an instance
description:
  - Checks variants, goal and workload, and writes them to the directory of results. Fails where a tune of the instance
    runs on this controller.
  - Runs on the controller.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description: Name of the instance that is tuned.
    type: str
    default: ""
  instances:
    description: The C(vllm_instances) of the host.
    type: raw
    required: true
  variants:
    description: The variants by name, each with C(args), C(env), C(preset) or C(strategy).
    type: raw
    default: {}
  matrix:
    description: Lists of values for C(args), C(env), C(preset) and C(strategy); all their combinations are variants.
    type: raw
    default: {}
  goal:
    description: The goal, with C(metric), C(concurrency), and perhaps C(workload) and C(limits).
    type: raw
    default: {}
  rounds:
    description: Number of measurements of each variant, from 2.
    type: raw
    default: 3
  drop_percent:
    description: By how many percent a variant must be worse than the leader, or than a limit, to be dropped early.
    type: raw
    default: 10
  workload_definitions:
    description: The site's own workloads.
    type: dict
    default: {}
  requests_per_stream:
    description: Requests of a measurement for each of those at a time.
    type: raw
    default: 4
  requests_min:
    description: Requests of a measurement at least.
    type: raw
    default: 8
  dir:
    description: Directory of the results on the controller.
    type: path
    default: tune-results
"""

EXAMPLES = "\n# playbooks/tune.yml\n"
