#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: release_drift
short_description: (internal) Show what appears, changes or vanishes between two releases of vLLM
description:
  - Looks up what a recipe, the shell text of a guide or a C(--config) file sets in the option tables of two releases
    (C(catalog/options/)), and reports how each of them treats it, which settings do nothing in the newer one, and what
    replaced them. Without any of the three it compares the tables themselves.
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  older:
    description: The release of vLLM that is in use. It needs a table in C(catalog/options/).
    type: str
    required: true
  newer:
    description: The release of vLLM to upgrade to.
    type: str
    required: true
  recipe:
    description: A recipe of the catalogue, V(openai/gpt-oss-120b). All its blocks are checked.
    type: str
    default: ""
  accelerator:
    description: Report only what concerns this accelerator, a model of C(catalog/accelerators/).
    type: str
    default: ""
  command:
    description: A file with C(export NAME=VALUE) lines and C(vllm serve) commands. Everything else in it is ignored.
    type: path
    default: ""
  config:
    description: A YAML file as vLLM's C(--config) takes it.
    type: path
    default: ""
  fail:
    description: Whether a setting that worked in the older release and does not in the newer one is an error.
    type: bool
    default: false
  format:
    description: V(table) for people, at most 120 columns wide, or V(json) for programs.
    type: str
    choices: [table, json]
    default: table
  recipe_path:
    description: Directories of the site's own recipes, searched before the bundled catalogue.
    type: list
    elements: path
    default: []
  accelerator_catalog_path:
    description: Directories of the site's own accelerators, laid over the bundled ones.
    type: list
    elements: path
    default: []
  evidence_path:
    description: Directories with the site's own evidence files, searched before the bundled ones.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# playbooks/drift.yml\n"
