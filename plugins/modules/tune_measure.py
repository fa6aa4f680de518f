#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: tune_measure
short_description: (internal) Measure the variant that an instance serves with
description:
  - Takes one measurement with M(baremetal.inference.instance_bench) after one that does not count, and keeps it on the
    controller at once.
  - A variant that does not survive the measurement is noted as failed.
extends_documentation_fragment:
  - baremetal.inference.attributes.unsupported
  - baremetal.inference.bench_user
options:
  instance:
    description: Name of the instance that is tuned.
    type: str
    required: true
  dir:
    description: Directory of the results on the controller.
    type: path
    default: tune-results
  variant:
    description: Name of the variant.
    type: str
    required: true
  round:
    description: Number of the round.
    type: int
    required: true
  timeout:
    description: Seconds until a measurement must be finished.
    type: float
    default: 1800
"""

EXAMPLES = "\n# playbooks/tasks/tune_measurement.yml\n"
