#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_plan
short_description: Decide what a host needs for NVIDIA's driver
version_added: 0.3.0
description:
  - Reads the host as M(baremetal.inference.cuda_state) does and returns what is to be done there, without what is there
    already. A host on which nothing is to be done gets a plan of empty lists.
  - The chips decide on open or proprietary kernel modules and on the fabric manager, the release of vLLM on the oldest
    driver.
  - A host that cannot get what it needs is an error that says why, before anything is changed.
extends_documentation_fragment:
  - baremetal.inference.attributes
  - baremetal.inference.kernel_trees
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  detected:
    description:
      - The detected hardware, the fact C(accelerator_detected) that M(baremetal.inference.accelerator_info) returns.
    type: dict
    required: true
  release:
    description:
      - Name of a file in C(catalog/releases/) or in O(release_path); its C(minimum_driver) counts.
    type: str
    required: true
  release_path:
    description:
      - Directories on the controller with the site's own releases.
    type: list
    elements: path
    default: []
  catalog_path:
    description:
      - Directories on the controller with the site's own accelerators.
    type: list
    elements: path
    default: []
  version:
    description:
      - Branch (V(580)) or exact version (V(580.95.05)) of the driver. By default the branch of the release's minimum.
    type: str
    default: ""
  source:
    description:
      - Where packages come from. With V(none), none are installed.
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  policy:
    description:
      - What becomes of a driver that is there. V(retain) leaves one alone that the release works with, V(install)
        brings it to O(version), V(halt) fails where anything is to be installed.
    type: str
    choices: [retain, install, halt]
    default: retain
  mirror:
    description:
      - What stands for the address of the vendor's repositories, or of Debian's archive for O(source=distro).
    type: str
    default: ""
  epel_mirror:
    description:
      - What stands for the address of EPEL, where RHEL and its clones get DKMS from.
    type: str
    default: ""
  hold:
    description:
      - Whether packages of the driver are held against upgrades.
    type: bool
    default: true
  reboot_allowed:
    description:
      - Whether the host may be rebooted where that is needed.
    type: bool
    default: false
  keep:
    description:
      - Whether the driver that is there is to stay whatever else is asked for. That is for a host on which another one
        could not be installed.
    type: bool
    default: false
    version_added: 0.4.0
  resolve:
    description:
      - Whether the host's repositories are asked which versions they have, so that every version is exact. They have to
        be there for that.
    type: bool
    default: false
  root:
    description:
      - Where the host's files are. Tests show a tree of their own here.
    type: path
    default: /
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Decide what the driver needs
  baremetal.inference.cuda_plan:
    detected: "{{ accelerator_detected }}"
    release: "0.33.0"
  become: true
  register: cuda
"""

RETURN = r"""
plan:
  description: What is to be done, in this order.
  type: dict
  returned: success
  contains:
    remove_first:
      description: Names of packages that are in the way of the repositories.
      type: list
      elements: str
    repositories:
      description: Of each repository the C(path) and C(content) of its file, where its C(key) is and its C(key_path).
      type: list
      elements: dict
    prepare:
      description: Commands before the packages.
      type: list
      elements: list
    packages:
      description: Packages in the package manager's words, with versions.
      type: list
      elements: str
      sample: [dkms, nvidia-driver-pinning-580, nvidia-open=580.95.05-*]
    remove:
      description: Names of packages that go once the others are there.
      type: list
      elements: str
    files:
      description: Files that are not there like this, C(path) and C(content).
      type: list
      elements: dict
    finish:
      description: Commands after the packages and files.
      type: list
      elements: list
    services:
      description: Services that do not run and have to, empty where a reboot has to come first.
      type: list
      elements: str
    hold:
      description: Installed packages that are not held and have to be.
      type: list
      elements: str
    reboot:
      description: Why a reboot is needed, empty where none is.
      type: list
      elements: str
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
fabric:
  description: Over which switches the chips are connected, V(none) for none.
  type: str
  returned: success
minimum_driver:
  description: The oldest driver that the release works with.
  type: str
  returned: success
driver:
  description: The C(version) and C(flavour) of the driver that is loaded, empty for none.
  type: dict
  returned: success
"""
# The action plugin of the same name does the work; on the host it runs the module cuda_state.
