#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: explain_plans
short_description: (internal) Show where every setting of the instances of a play comes from
description:
  - Shows for each distinct plan every argument and variable with its value, the layer that it comes from, the reason
    and what it overrides. Hosts whose plans differ only in the host name are shown once.
  - Runs on the controller over all hosts of the play at once and contacts no host, so set C(run_once).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description: Only this instance and its replicas; all instances when empty.
    type: str
    default: ""
  format:
    description:
      - V(table) for people, at most 120 columns wide, or V(json) for programs.
      - V(short) leaves out of V(table) what the collection sets in every plan, replicas and commands.
    type: str
    choices: [table, short, json]
    default: table
  evidence_path:
    description: Directories with the site's own evidence files, searched before the bundled ones. The nearest evidence
      for each plan is cited, and a preset without evidence for its hardware is named.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# playbooks/explain.yml\n"
