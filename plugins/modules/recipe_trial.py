#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: recipe_trial
short_description: (internal) Plan recipes on chips, and place a new recipe among those of a site
description:
  - Plans every variant of each recipe on hosts with certain chips, as if an inventory declared them, and shows what it
    takes and needs, or why it cannot be served. Every plan is checked against the table of options of its release.
  - A new recipe, O(file), is placed below O(dest) only if some variant of it can be planned.
  - Runs on the controller and contacts no host.
extends_documentation_fragment:
  - baremetal.inference.attributes.full
  - baremetal.inference.catalogue_paths
options:
  recipes:
    description: Names of recipes. V(all) alone stands for every recipe of O(recipe_path) and of the collection.
    type: list
    elements: str
    default: []
  file:
    description: A file with a new recipe.
    type: path
    default: ""
  dest:
    description:
      - Directory of the site's recipes, where the new recipe is placed as C(ORGANISATION/NAME.yaml) by its C(model_id).
    type: path
    default: ""
  release:
    description: A release of the catalogue or of O(release_path). Each stack's own when it is empty.
    type: str
    default: ""
  accelerators:
    description:
      - The hosts to plan on, each as C(MODEL) or C(MODEL:COUNT). The chips that the recipes list when it is empty.
    type: list
    elements: str
    default: []
  show_plan:
    description: Whether to show the first plan in full as well.
    type: bool
    default: false
"""

EXAMPLES = "\n# playbooks/fit.yml\n"
