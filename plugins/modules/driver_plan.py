#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: driver_plan
short_description: (internal) Decide what a host needs for a vendor's driver
description:
  - Reads the host as M(baremetal.inference.driver_state) does and returns the missing steps. A host that needs no
    change gets a plan of empty lists.
  - The release of vLLM and the chips decide on the driver, for V(cann) on firmware and CANN too.
  - Fails with the reason if the host cannot get what it needs, before anything is changed.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.kernel_trees
options:
  stack:
    description: The stack whose driver is planned. Options of other stacks are an error.
    type: str
    choices: [cuda, rocm, cann]
    required: true
  version:
    description: For V(cuda) the branch (V(580)) or exact version (V(580.95.05)) of the driver, for V(rocm) the release
      of ROCm whose driver is installed, for V(cann) the version of CANN. By default what the release of vLLM needs.
    type: str
    default: ""
  source:
    description: Where packages come from. With V(none), none are installed. V(distro) has the distribution's own
      driver, but none of Huawei's.
    type: str
    choices: [vendor, distro, mirror, none]
    default: vendor
  mirror:
    description:
      - Address that replaces the one of the vendor's repositories, or of Debian's archive for O(source=distro).
    type: str
    default: ""
  epel_mirror:
    description: Address that replaces the one of EPEL, the source of DKMS for RHEL and its clones. Not for V(cann).
    type: str
    default: ""
  userspace:
    description: How much of ROCm is installed on the host itself, V(none) if images and virtual environments have it.
    type: str
    choices: [none, runtime, full]
    default: none
  users:
    description: Users of the host that are put into the groups C(render) and C(video).
    type: list
    elements: str
    default: []
  blacklist_remove:
    description: Whether to remove lines in C(modprobe.d) that keep C(amdgpu) from loading. Otherwise they are an error.
    type: bool
    default: false
  iommu_pt:
    description: Whether to set the IOMMU to pass-through mode (C(iommu=pt)), which needs a reboot.
    type: bool
    default: false
  numa_balancing_off:
    description: Whether to keep the kernel from moving memory between NUMA nodes.
    type: bool
    default: false
  driver_version:
    description: Version of the driver. By default the release's C(hdk).
    type: str
    default: ""
  firmware_version:
    description: Version of the firmware by its own number. By default the release's, which is for the release's driver
      only. Without one, the firmware is not changed unless O(run_files) has a file of it.
    type: str
    default: ""
  repository_key:
    description: Address of the repository's key. By default the key in the repository itself.
    type: str
    default: ""
  format:
    description: V(packages), V(run) files, or V(auto) for files where O(run_files) has some.
    type: str
    choices: [auto, packages, run]
    default: auto
  run_files:
    description: Huawei's files for all kinds of hosts; each host uses those that match its chips and architecture.
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
        description: Address of the file, C(https://), C(http://), or C(file://) on the host.
        type: str
        required: true
      sha256:
        description: Its checksum, 64 hexadecimal digits. A file without one is an error.
        type: str
        default: ""
  licence_accepted:
    description: Whether a person has read and accepted Huawei's licence. Without it, nothing of Huawei's is installed.
    type: bool
    default: false
  toolkit:
    description: Whether to install CANN itself on the host. Containers have their own.
    type: bool
    default: false
  user:
    description: The user for whom the driver is installed.
    type: str
    default: HwHiAiUser
  group:
    description: The group of O(user).
    type: str
    default: HwHiAiUser
  detected:
    description:
      - The detected hardware, the fact C(accelerator_detected) that M(baremetal.inference.accelerator_info) returns.
    type: dict
    required: true
  release:
    description: Name of a file in C(catalog/releases/) or in O(release_path). What it says of this stack counts.
    type: str
    required: true
  release_path:
    description: Directories on the controller with the site's own releases.
    type: list
    elements: path
    default: []
  catalog_path:
    description: Directories on the controller with the site's own accelerators.
    type: list
    elements: path
    default: []
  policy:
    description: What happens to an installed driver. V(retain) keeps it if the release works with it, V(install)
      installs the requested version, V(halt) fails if anything would be installed.
    type: str
    choices: [retain, install, halt]
    default: retain
  hold:
    description: Whether to hold the driver's packages against upgrades.
    type: bool
    default: true
  reboot_allowed:
    description: Whether the host may be rebooted if that is needed.
    type: bool
    default: false
  keep:
    description: Whether to keep the installed driver whatever else is requested. The role sets it for a host on which
      another driver could not be installed.
    type: bool
    default: false
    version_added: 0.4.0
  resolve:
    description: Whether to resolve exact versions from the host's repositories, which must already be configured.
    type: bool
    default: false
  root:
    description: Root of the host's files. Tests use another tree.
    type: path
    default: /
"""

EXAMPLES = "\n# roles/cann/tasks/plan.yml\n"
# The action plugin of the same name does the work; on the host it runs the module driver_state.
