#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: acceptance_bench
short_description: (internal) Measure an instance for seconds, as a part of an acceptance
description:
  - Takes one measurement with M(baremetal.inference.instance_bench) after one that does not count.
  - An instance that is busy, and a measurement that fails, are results and no errors.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.bench_user
options:
  instance:
    description: Name of the instance on the host.
    type: str
    required: true
  stack:
    description: The stack of the host's accelerators, or C(cpu). A processor is asked for less.
    type: str
    required: true
"""

EXAMPLES = "\n# playbooks/accept.yml\n"
