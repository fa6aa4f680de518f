#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rocm_plan
short_description: (internal) Decide what a host needs for AMD's driver
version_added: 0.4.0
description:
  - Internal to the role P(baremetal.inference.rocm#role).
  - Reads the host as M(baremetal.inference.driver_state) does and returns the missing steps. A host that needs no
    change gets a plan of empty lists.
  - The release of vLLM decides on ROCm and with it on the driver, the chips and the release on the oldest supported
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
      - Release of ROCm (V(10.0.0)), whose driver is installed. By default that of the release of vLLM.
    type: str
    default: ""
  source:
    description:
      - Where packages come from. V(distro) is the kernel's own driver with the distribution's firmware. With V(none),
        none are installed.
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  mirror:
    description:
      - Address that replaces those of the vendor's three hosts, or of Debian's archive for O(source=distro).
    type: str
    default: ""
  epel_mirror:
    description:
      - Address that replaces the one of EPEL, the source of DKMS for RHEL and its clones.
    type: str
    default: ""
  userspace:
    description:
      - How much of ROCm is installed on the host itself, V(none) if images and virtual environments have it.
    type: str
    choices: [none, runtime, full]
    default: none
  users:
    description:
      - Users of the host that are put into the groups C(render) and C(video).
    type: list
    elements: str
    default: []
  blacklist_remove:
    description:
      - Whether to remove lines in C(modprobe.d) that keep C(amdgpu) from loading. Otherwise they are an error.
    type: bool
    default: false
  iommu_pt:
    description:
      - Whether to set the IOMMU to pass-through mode (C(iommu=pt)), which needs a reboot.
    type: bool
    default: false
  numa_balancing_off:
    description:
      - Whether to keep the kernel from moving memory between NUMA nodes.
    type: bool
    default: false
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Decide what the driver needs
  baremetal.inference.rocm_plan:
    detected: "{{ ansible_facts.accelerator_detected }}"
    release: "0.33.0"
  become: true
  register: rocm
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
chips:
  description: PCI addresses of AMD's chips that are in the catalogue.
  type: list
  elements: str
  returned: success
minimum_driver:
  description: The oldest driver that the release and the chips work with, empty for any.
  type: str
  returned: success
driver:
  description: The C(version) of the driver that is loaded, and whether one is C(loaded).
  type: dict
  returned: success
"""
# The action plugin of the same name does the work; on the host it runs the module driver_state.
