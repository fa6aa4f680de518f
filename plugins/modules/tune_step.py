#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: tune_step
short_description: (internal) Keep the state of a tune and choose the next measurement
description: Runs on the controller.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  state:
    description:
      - V(planned) keeps the plan of a variant.
      - V(ready) checks that the host may be tuned now, and returns the states that it goes back to.
      - V(next) returns the variant that is measured next.
      - V(failed) notes that a variant does not start.
    type: str
    choices: [planned, ready, next, failed]
    required: true
  instance:
    description: Name of the instance that is tuned.
    type: str
    required: true
  dir:
    description: Directory of the results on the controller.
    type: path
    default: tune-results
  variant:
    description: Name of the variant, for V(planned) and V(failed).
    type: str
    default: ""
  plans:
    description: For V(planned), the plans of the variant; for V(ready), those of the unchanged instance.
    type: dict
    default: {}
  slots:
    description: For V(ready), the result of M(baremetal.inference.instance_slot).
    type: dict
    default: {}
  lock:
    description: For V(ready), the holder of the host's lock.
    type: dict
    default: {}
  gateways:
    description: For V(ready), results of M(baremetal.inference.gateway_server), one for each gateway of the host.
    type: list
    elements: dict
    default: []
  fresh:
    description: For V(ready), whether earlier measurements of these variants are removed.
    type: bool
    default: false
  stop:
    description: For V(ready), whether an interrupted tune is ended, so that its lock must be there.
    type: bool
    default: false
  instances:
    description: For V(next), the C(vllm_instances) of the host.
    type: raw
    default: {}
  failed:
    description: For V(failed), the result of the task that failed.
    type: raw
    default: {}
"""

EXAMPLES = "\n# playbooks/tasks/tune_measurement.yml\n"
