#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: bench_request
short_description: (internal) Check what is requested of a benchmark before a host is contacted
description:
  - Fails for a workload that is unknown or invalid, an invalid number, and results to compare with that cannot be read.
  - Runs on the controller and connects to no host.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.bench_request
"""

EXAMPLES = "\n# playbooks/bench.yml\n"
