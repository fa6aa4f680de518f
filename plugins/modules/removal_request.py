#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: removal_request
short_description: (internal) Check what the variables of remove.yml ask for
description:
  - Fails unless exactly one thing is requested, and for a variable C(remove_...) that the playbook does not have.
  - Runs on the controller and connects to no host, so use C(run_once).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  instance:
    description: Names of instances, a list or a text with commas.
    type: raw
    default: ""
  model:
    description: Names of models, C(ORGANISATION/NAME) or C(ORGANISATION/NAME@REVISION).
    type: raw
    default: ""
  environment:
    description: Releases or names of virtual environments.
    type: raw
    default: ""
  image:
    description: References of images, C(name:tag) or C(name@sha256:...).
    type: raw
    default: ""
  everything:
    description: Everything that the collection put on the host.
    type: bool
    default: false
  driver:
    description: With O(everything), the packages and settings of the vendor's driver too.
    type: bool
    default: false
  container_engine:
    description: With O(everything), the packages and settings of docker and podman too.
    type: bool
    default: false
"""

EXAMPLES = "\n# playbooks/remove.yml\n"
