#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

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

RETURN = r"""
recipes:
  description: Names of recipes, such as V(Qwen/Qwen3-8B).
  type: list
  elements: str
  returned: success
recipe_dest:
  description: The first directory of C(vllm_recipe_path), an absolute path; empty without one.
  type: str
  returned: success
models:
  description:
    - What no manifest pins, as options of M(baremetal.inference.weights_manifest). Empty while a recipe is missing.
  type: list
  elements: dict
  returned: success
manifest_dest:
  description: The first directory of C(weights_manifest_path), an absolute path; empty without one.
  type: str
  returned: success
directories:
  description: Those of RV(recipe_dest) and RV(manifest_dest) that are set.
  type: list
  elements: str
  returned: success
"""
