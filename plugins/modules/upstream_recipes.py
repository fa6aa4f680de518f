#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: upstream_recipes
short_description: (internal) Fetch the recipes that a release of vLLM carries
description:
  - Takes the recipes out of vLLM's source distribution, checks the sha256 of each against the pins of this collection,
    and writes them into a directory of the site, with their licence and a record of where they are from.
  - A file that is there and unchanged is not fetched again. A file that the site has changed stays.
  - Runs on the controller and contacts no host.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  dest:
    description:
      - Directory of the site's recipes, as in C(vllm_recipe_path). Each file is C(ORGANISATION/NAME.yaml) below it.
    type: path
    required: true
  names:
    description: Names of recipes, such as V(Qwen/Qwen3-32B). All of the release when it is empty.
    type: list
    elements: str
    default: []
  release:
    description: The version of vLLM. The newest one that is pinned when it is empty.
    type: str
    default: ""
  source:
    description: Where the source distribution is. V(index) is the Python package index, C(index:URL) another one of its
      kind, such as a mirror; else an address or a path of the file, or a directory with its unpacked files.
    type: str
    default: index
  ca_file:
    description: A PEM file with the site's own authorities.
    type: path
"""

EXAMPLES = "\n# playbooks/fetch_recipes.yml\n"
