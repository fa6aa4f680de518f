#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: mirror_needs
short_description: (internal) Determine what a mirror must contain
description:
  - Plans every instance of hosts as M(baremetal.inference.render_plans) does, and returns which weights, encodings,
    locks of wheels and container images these plans need. Images are named as they are published, whatever registry the
    hosts take them from.
  - O(releases) and O(models) add to that.
  - Runs on the controller without a connection to hosts. The problems of all hosts are one error.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  root:
    description: The directory that is to be carried, which is checked for missing wheels.
    type: path
    required: true
  hosts:
    description: Names of hosts of the inventory.
    type: list
    elements: str
    default: []
  releases:
    description: Releases of vLLM whose images and wheels are needed.
    type: list
    elements: str
    default: []
  stacks:
    description: The stacks of O(releases) to include, such as V(cuda); all if empty.
    type: list
    elements: str
    default: []
  models:
    description: Names of manifests whose weights are needed, such as V(openai/gpt-oss-20b).
    type: list
    elements: str
    default: []
  pin_dest:
    description: A directory of manifests that is searched after the others. It may be missing.
    type: path
    default: ""
  report_unpinned:
    description: Whether to return the models without a manifest instead of failing.
    type: bool
    default: false
  evaluation:
    description: Whether the wheels of lm-eval and gpt-oss are needed, which the playbook
      C(baremetal.inference.evaluate) installs.
    type: bool
    default: false
  provisioner:
    description: Whether the wheels of Ironic and of its agent are needed, which the role
      P(baremetal.inference.provisioner#role) installs.
    type: bool
    default: false
  release_path:
    description: Directories that are searched for releases before the collection's own.
    type: list
    elements: path
    default: []
  weights_manifest_path:
    description: Directories that are searched for manifests of O(models) before the collection's own.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# playbooks/mirror.yml\n"
