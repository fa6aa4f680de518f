#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cann_plan
short_description: Decide what a host needs for Huawei's driver, firmware and CANN
version_added: 0.4.0
description:
  - Reads the host as M(baremetal.inference.cann_state) does and returns what is to be done there, without what is there
    already. A host on which nothing is to be done gets a plan of empty lists.
  - CANN, driver and firmware of one row of the vendor's matrix belong together; the release of vLLM names it. A driver
    of that row or newer, with firmware that fits it, is left alone.
  - A host that cannot get what it needs is an error that says why, before anything is changed.
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
        Without one, firmware is left as it is, unless O(run_files) has a file of it.
    type: str
    default: ""
  source:
    description:
      - Where packages come from. With V(none), nothing is installed. V(distro) is refused, as no distribution has them.
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  mirror:
    description:
      - What stands for the address of the vendor's repository, apt's or dnf's.
    type: str
    default: ""
  repository_key:
    description:
      - What stands for the address of the repository's key. By default it is had from the repository itself.
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
      - Files of Huawei's, for all kinds of hosts; each host takes those that fit its chips and architecture.
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
          - Where it is had from, C(https://), C(http://), or C(file://) on the host.
        type: str
        required: true
      sha256:
        description:
          - Its checksum, 64 hexadecimal digits. A file without one is not taken.
        type: str
        default: ""
  licence_accepted:
    description:
      - Whether Huawei's licence was read and accepted. Nothing of Huawei's is installed without.
    type: bool
    default: false
  toolkit:
    description:
      - Whether CANN itself is wanted on the host. Containers bring their own.
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
    detected: "{{ accelerator_detected }}"
    release: "0.23.0"
    licence_accepted: true
  become: true
  register: cann
"""

RETURN = r"""
plan:
  description: What is to be done, and the results beside it, as of M(baremetal.inference.cuda_plan).
  type: dict
  returned: success
changes:
  description: Whether anything is to be done.
  type: bool
  returned: success
no_reboot:
  description: Why a reboot that is needed must not be made, null where it may or none is needed.
  type: str
  returned: success
mark:
  description: The C(path) and C(content) of the file that keeps a host from being rebooted twice for the same reason.
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
  description: Devices that the driver has to give.
  type: list
  elements: str
  returned: success
driver:
  description: The C(version) of the driver that runs, empty for none.
  type: dict
  returned: success
"""
# The action plugin of the same name does the work; on the host it runs the module cann_state.
