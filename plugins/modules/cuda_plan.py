#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_plan
short_description: (internal) Decide what a host needs for NVIDIA's driver
version_added: 0.3.0
description:
  - Internal to the role P(baremetal.inference.cuda#role).
  - Reads the host as M(baremetal.inference.driver_state) does and returns the missing steps. A host that needs no
    change gets a plan of empty lists.
  - The chips decide on open or proprietary kernel modules and on the fabric manager, the release of vLLM on the oldest
    driver.
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
      - Branch (V(580)) or exact version (V(580.95.05)) of the driver. By default the branch of the release's minimum.
    type: str
    default: ""
  source:
    description:
      - Where packages come from. With V(none), none are installed.
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  mirror:
    description:
      - Address that replaces the one of the vendor's repositories, or of Debian's archive for O(source=distro).
    type: str
    default: ""
  epel_mirror:
    description:
      - Address that replaces the one of EPEL, the source of DKMS for RHEL and its clones.
    type: str
    default: ""
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Decide what the driver needs
  baremetal.inference.cuda_plan:
    detected: "{{ ansible_facts.accelerator_detected }}"
    release: "0.33.0"
  become: true
  register: cuda
"""

RETURN = r"""
plan:
  description: The missing steps, in this order.
  type: dict
  returned: success
  contains:
    groups:
      description: Groups that are not there, with C(name), C(gid) and C(system).
      type: list
      elements: dict
    users:
      description: Users that are not as they should be, with C(name), C(group), C(groups), C(home), C(shell).
      type: list
      elements: dict
    files:
      description:
        - Files that are not there like this, C(path) and C(content), which service C(restarts) for it, and whether
          it is C(in_initramfs).
      type: list
      elements: dict
    remove_first:
      description: Names of packages that configure the same repositories.
      type: list
      elements: str
    recover:
      description: Packages with an interrupted installation.
      type: list
      elements: str
    unpin:
      description: Packages that pin another version, on a host with such packages.
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
      description: Packages with versions, as arguments of the package manager.
      type: list
      elements: str
      sample: [dkms, nvidia-driver-pinning-580, nvidia-open=580.95.05-*]
    release:
      description: Held packages to release for that.
      type: list
      elements: str
    stop:
      description: Units to stop before the driver is replaced, in order.
      type: list
      elements: str
    unload:
      description: Kernel modules to unload then, in order.
      type: list
      elements: str
    installers:
      description:
        - The vendor's files to run, in order, with C(name), C(url), C(path), C(sha256), C(argv), C(stdin), C(log)
          and C(why).
      type: list
      elements: dict
    remove:
      description: Names of packages to remove after the installation.
      type: list
      elements: str
    finish:
      description: Commands after the packages and files.
      type: list
      elements: list
    services:
      description: Services to start, empty if the host must be rebooted first.
      type: list
      elements: str
    hold:
      description: Installed packages to hold.
      type: list
      elements: str
    reboot:
      description: Why a reboot is needed, empty if none is.
      type: list
      elements: str
ahead:
  description: Those of the packages that decide on versions of others.
  type: list
  elements: str
  returned: success
pinning:
  description: The names of these.
  type: list
  elements: str
  returned: success
batches:
  description: The other packages, as they are installed at once.
  type: list
  elements: list
  returned: success
before_download:
  description: Steps of RV(plan) that must run before packages can be downloaded.
  type: list
  elements: str
  returned: success
holds:
  description: All packages to hold in the end, with those that the plan installs.
  type: list
  elements: str
  returned: success
installed:
  description: The driver's installed packages with their versions, for a restore.
  type: list
  elements: str
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
# The action plugin of the same name does the work; on the host it runs the module driver_state.
