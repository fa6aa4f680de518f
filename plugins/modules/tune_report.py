#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: tune_report
short_description: (internal) Write the result of a tune
description:
  - Writes the table of all variants, an evidence file for each that was measured in all rounds, and the proposed change
    as a diff.
  - Runs on the controller.
extends_documentation_fragment: baremetal.inference.attributes.unsupported
options:
  instance:
    description: Name of the instance that is tuned.
    type: str
    required: true
  instances:
    description: The C(vllm_instances) of the host.
    type: raw
    required: true
  dir:
    description: Directory of the results on the controller.
    type: path
    default: tune-results
  driver:
    description: Version of the host's driver.
    type: str
    default: ""
  recipe_path:
    description: Directories with the site's own recipes.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# playbooks/tune.yml\n"
