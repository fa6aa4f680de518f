#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

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

RETURN = r"""
goal:
  description: The goal in words.
  type: str
  returned: success
winner:
  description: The best variant; null where none keeps the limits.
  type: str
  returned: success
proposed:
  description: Whether it should replace the current settings of the instance.
  type: bool
  returned: success
reason:
  description: Why, in a sentence.
  type: str
  returned: success
variants:
  description: A row for each variant, with C(runs), C(figures) and C(outcome).
  type: list
  elements: dict
  returned: success
evidence:
  description: Paths of the evidence files.
  type: list
  elements: str
  returned: success
proposal:
  description: Path of the file with the diffs; empty where nothing is proposed.
  type: str
  returned: success
result:
  description: Path of the result as JSON.
  type: str
  returned: success
instance_diff:
  description: The proposed change of C(vllm_instances) as a diff.
  type: str
  returned: when a change is proposed
recipe_diff:
  description: The same change as a rule of the recipe's preset.
  type: str
  returned: when a change is proposed that a rule can make
"""
