#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: adopt_command
short_description: (internal) Turn a command that starts vLLM into an entry of vllm_instances
description:
  - Reads a command, a compose file, a unit of systemd or a quadlet of podman, and prints the entry of
    C(vllm_instances) that means the same. Names the words that are no part of it, with the reasons.
  - Runs nothing of what it reads, and prints no secret of it. Runs on the controller and contacts no host.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.catalogue_paths
options:
  command:
    description: The command. Either this or O(file) is required.
    type: str
    default: ""
  file:
    description: A file with the command, or a compose file, a unit or a quadlet.
    type: path
    default: ""
  name:
    description: The name of the instance.
    type: str
    default: chat
  model:
    description: The repository of the weights, where the command names a path.
    type: str
    default: ""
  release:
    description: A release of the catalogue or of O(release_path). Each stack's own when it is empty.
    type: str
    default: ""
  accelerator:
    description: The host to plan on, as C(MODEL) or C(MODEL:COUNT). A common one of the stack when it is empty.
    type: str
    default: ""
  service:
    description: The service of a compose file, where several start vLLM.
    type: str
    default: ""
"""

EXAMPLES = "\n# playbooks/adopt.yml\n"
