#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: bench_run
short_description: (internal) Measure an instance with all its workloads, and write the results on the controller
description:
  - Takes each measurement with M(baremetal.inference.instance_bench) on the host, after a warm-up that is not counted,
    and writes it to the controller at once. What an earlier run has measured with the same plan is not measured again.
  - Writes a summary, a file of evidence and a page with plots.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.bench_request
  - baremetal.inference.bench_user
options:
  plans:
    description: The plans of the host's instances, as M(baremetal.inference.serve_plan) returns them.
    type: dict
    required: true
  slots:
    description: What M(baremetal.inference.instance_slot) returns of the host's instances. An instance that does not
      serve with its plan is refused.
    type: dict
    required: true
  instance:
    description: Name of the instance. It may be missing where the host has only one.
    type: str
    default: ""
  shared:
    description: Whether the instance may serve others meanwhile.
    type: bool
    default: false
  shorten:
    description: Whether workloads that are longer than the instance's C(max-model-len) are shortened.
    type: bool
    default: false
  fresh:
    description: Whether everything is measured again.
    type: bool
    default: false
  dir:
    description: Directory of the results on the controller.
    type: path
    default: bench-results
  driver:
    description: Version of the accelerators' driver, for the evidence.
    type: str
    default: ""
"""

EXAMPLES = "\n# playbooks/bench.yml\n"
