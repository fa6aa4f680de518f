#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: acceptance_plan
short_description: (internal) Check the options of an acceptance, and say what a host is compared with
description:
  - Checks the playbook's variables and that results can be written, and looks the host's chips up in the catalogue.
  - Runs on the controller. It makes O(dir).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  detected:
    description: The fact C(accelerator_detected).
    type: dict
    default: {}
  minutes:
    description: How long the burn-in takes.
    type: raw
    default: 2
  dir:
    description: Directory of the results on the controller.
    type: path
    required: true
  peer:
    description: A second host of the inventory to measure the network with.
    type: str
    default: ""
  port:
    description: Port for that.
    type: raw
    default: 5299
  storage_bytes:
    description: Bytes of the file that is made where no large file can be read.
    type: raw
    default: 4294967296
  storage_gb_per_s:
    description: The storage must be read at least this fast.
    type: raw
    default: 0
  network_gbit_per_s:
    description: The network must be at least this fast.
    type: raw
    default: 0
  bench_tokens_per_s:
    description: Each instance has to give at least that many output tokens per second.
    type: raw
    default: 0
  catalog_path:
    description: Directories of the site's own accelerators.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# playbooks/accept.yml\n"
