#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: health_plan
short_description: (internal) Put together what the health service of a host has to know
description:
  - Returns the hardware of the host, the chips of each instance, and the faults of the catalogue that the host watches
    for.
  - Runs on the controller and contacts no host. A wrong file of the site's catalogue is an error.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  accelerator:
    description:
      - The detected hardware, the fact C(accelerator_detected) that M(baremetal.inference.accelerator_info) returns.
    type: dict
    required: true
  partition:
    description: The modes of AMD's chips that the plans are for, such as V(CPX/NPS4); the detected ones if empty.
    type: str
    default: ""
  accelerator_catalog_path:
    description: Directories with the site's own accelerators, laid over the bundled catalogue.
    type: list
    elements: path
    default: []
  plans:
    description: The plans of the host's instances by name, as M(baremetal.inference.serve_plan) returns them.
    type: dict
    default: {}
  fault_path:
    description: Directories with the site's own files of the catalogue of faults, laid over the bundled ones.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# roles/health/tasks/preflight.yml\n"
