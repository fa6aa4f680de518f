#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cann_plan
short_description: (internal) Decide what a host needs for Huawei's driver, firmware and CANN
version_added: 0.4.0
description:
  - Internal to the role P(baremetal.inference.cann#role).
  - Reads the host as M(baremetal.inference.driver_state) does and returns the missing steps. A host that needs no
    change gets a plan of empty lists.
  - CANN, driver and firmware of one row of the vendor's matrix belong together; the release of vLLM names it. A driver
    of that row or newer, with firmware that fits it, is not changed.
  - Fails with the reason if the host cannot get what it needs, before anything is changed.
extends_documentation_fragment:
  - baremetal.inference.attributes
  - baremetal.inference.kernel_trees
  - baremetal.inference.stack_plan
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  version:
    description:
      - Version of CANN. By default the release's.
    type: str
    default: ""
  driver_version:
    description:
      - Version of the driver. By default the release's C(hdk).
    type: str
    default: ""
  firmware_version:
    description:
      - Version of the firmware by its own number. By default the release's, which is for the release's driver only.
        Without one, the firmware is not changed unless O(run_files) has a file of it.
    type: str
    default: ""
  source:
    description:
      - Where packages come from. With V(none), nothing is installed. V(distro) is an error, since no distribution
        has them.
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  mirror:
    description:
      - Address that replaces the one of the vendor's repository for apt or dnf.
    type: str
    default: ""
  repository_key:
    description:
      - Address of the repository's key. By default the key in the repository itself.
    type: str
    default: ""
  format:
    description:
      - V(packages), V(run) files, or V(auto) for files where O(run_files) has some.
    type: str
    choices: [auto, packages, run]
    default: auto
  run_files:
    description:
      - Huawei's files for all kinds of hosts; each host uses those that match its chips and architecture.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The file's name as Huawei gives it, which says what it is. By default the end of O(run_files[].url).
        type: str
        default: ""
      url:
        description:
          - Address of the file, C(https://), C(http://), or C(file://) on the host.
        type: str
        required: true
      sha256:
        description:
          - Its checksum, 64 hexadecimal digits. A file without one is an error.
        type: str
        default: ""
  licence_accepted:
    description:
      - Whether a person has read and accepted Huawei's licence. Without it, nothing of Huawei's is installed.
    type: bool
    default: false
  toolkit:
    description:
      - Whether to install CANN itself on the host. Containers have their own.
    type: bool
    default: false
  user:
    description:
      - The user for whom the driver is installed.
    type: str
    default: HwHiAiUser
  group:
    description:
      - The group of O(user).
    type: str
    default: HwHiAiUser
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Decide what the driver needs
  baremetal.inference.cann_plan:
    detected: "{{ ansible_facts.accelerator_detected }}"
    release: "0.23.0"
    licence_accepted: true
  become: true
  register: cann
"""

RETURN = r"""
plan:
  description: What must be done, with its results, as M(baremetal.inference.cuda_plan) returns it.
  type: dict
  returned: success
changes:
  description: Whether the plan has any step.
  type: bool
  returned: success
no_reboot:
  description: Why a required reboot is not permitted, null if it is or if none is required.
  type: str
  returned: success
mark:
  description: The C(path) and C(content) of the file that prevents a second reboot for the same reason.
  type: dict
  returned: success
manager:
  description: The host's package manager, V(apt) or V(dnf).
  type: str
  returned: success
minimum_driver:
  description: The oldest driver that the release works with.
  type: str
  returned: success
cann_version:
  description: The version of CANN that the release belongs to.
  type: str
  returned: success
nodes:
  description: Device nodes that the driver must provide.
  type: list
  elements: str
  returned: success
driver:
  description: The C(version) of the driver that runs, empty for none.
  type: dict
  returned: success
"""
# The action plugin of the same name does the work; on the host it runs the module driver_state.
