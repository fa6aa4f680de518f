#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: missing_models
short_description: (internal) Determine which recipes and manifests the instances of hosts name and a site lacks
description:
  - Reads C(vllm_instances) of hosts, and returns the recipes that a release of vLLM carries and no directory of
    C(vllm_recipe_path) has. Without such a recipe it plans every instance as M(baremetal.inference.render_plans) does,
    and returns the models, draft models and tokenizers that no manifest pins.
  - Runs on the controller without a connection to hosts. The problems of all hosts are one error.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  hosts:
    description: Names of hosts of the inventory.
    type: list
    elements: str
    required: true
"""

EXAMPLES = "\n# playbooks/import_models.yml\n"
