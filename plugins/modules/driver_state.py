#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_state
short_description: (internal) Inspect a vendor's driver on a host
version_added: 0.3.0
description:
  - Internal to the roles P(baremetal.inference.cuda#role), P(baremetal.inference.rocm#role) and
    P(baremetal.inference.cann#role).
  - Reads the operating system, the kernels, the packages of the driver, the modules that are loaded and those on disk,
    what the vendor's tool lists, devices and services, and the kernel's log.
  - Returns findings, each with what to do. A host without faults has no findings.
  - Fails only if the host cannot be read. Findings are not an error of the module.
  - Changes nothing. Without root, the kernel's log and MOK keys count as empty.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.kernel_trees
  - baremetal.inference.stack_state
options:
  stack:
    description:
      - The stack whose driver is inspected. Options of other stacks are an error.
    type: str
    choices: [cuda, rocm, cann]
    required: true
  faults:
    description:
      - What the kernel's log can report of the chips, and what to do about each. The action plugin fills it from the
        catalogue of faults and O(fault_path).
    type: dict
    default: {}
  fault_path:
    description:
      - Directories with the site's own files of the catalogue of faults.
    type: list
    elements: path
    default: []
  fabric:
    description:
      - The kind of switches that connect the chips, V(none) for none.
      - By default it is detected. Switches of NVLink 5 are not detected if the ports that manage them cannot
        be read.
    type: str
    choices: [nvswitch, nvlink5, none]
  chips:
    description:
      - PCI addresses of the chips that programs need.
      - By default those of all of AMD's graphics and accelerators, also of a chip that only drives the console.
    type: list
    elements: str
  userspace:
    description:
      - Whether ROCm in user space is requested. If so, a missing C(amd-smi) and C(rocm-smi) is a finding. By default it
        is not.
    type: bool
  users:
    description:
      - Names of users whose groups are returned.
    type: list
    elements: str
  cann_version:
    description:
      - The version of CANN that the release belongs to. Checked with O(toolkit) only. Any version if empty.
    type: str
  toolkit:
    description:
      - Whether CANN itself (toolkit, operators, NNAL) must be on the host. By default it need not, because containers
        have their own.
    type: bool
  user:
    description:
      - The user for whom the driver is installed, by default C(HwHiAiUser).
    type: str
  group:
    description:
      - The group of O(user), which may open the chips' devices, by default C(HwHiAiUser).
    type: str
  nodes:
    description:
      - Devices that must exist. By default C(/dev/davinci_manager) and one for each chip on PCI.
    type: list
    elements: str
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Inspect the driver
  baremetal.inference.driver_state:
    stack: cuda
    minimum_driver: 580.65.06
  become: true
  register: driver

- name: Stop if it has faults
  ansible.builtin.assert:
    that: driver.findings | length == 0
    fail_msg: "{{ driver.summary }}"
"""

RETURN = r"""
host:
  description: The state of the host.
  type: dict
  returned: success
  contains:
    distribution:
      description: ID of C(/etc/os-release).
      type: str
      sample: ubuntu
    version:
      description: VERSION_ID of C(/etc/os-release).
      type: str
      sample: "24.04"
    codename:
      description: VERSION_CODENAME of C(/etc/os-release).
      type: str
    architecture:
      description: The machine's architecture.
      type: str
      sample: x86_64
    kernel:
      description: Release of the kernel that runs.
      type: str
    next_kernel:
      description: Release of the kernel that boots next.
      type: str
    secure_boot:
      description: Whether Secure Boot is on; null if the firmware does not report it.
      type: bool
    signing_key_enrolled:
      description: Whether the firmware trusts a key that DKMS signs with; null if that is unknown.
      type: bool
    packages:
      description: Versions of installed packages of kernels, the driver and what it needs, by name.
      type: dict
    modules:
      description: Version and srcversion of those of the driver's modules that are loaded.
      type: dict
    dkms:
      description: What DKMS has built, one entry for each module and kernel.
      type: list
      elements: dict
    holds:
      description: Names of packages that are held.
      type: list
      elements: str
    groups:
      description: Those of the stack's groups that there are, with their members.
      type: dict
    users:
      description: Of O(users) those that there are, with the name of their own group.
      type: dict
chips:
  description: PCI addresses of the vendor's chips.
  type: list
  elements: str
  returned: success
gpus:
  description: What the vendor's tool lists, one entry for each chip; for V(rocm) the chips that can be used.
  type: list
  elements: dict
  returned: with O(stack=cuda) and O(stack=rocm)
listed_by:
  description: The source of this list, C(amd-smi), C(rocm-smi) or the kernel.
  type: str
  returned: with O(stack=rocm)
shown:
  description: Further facts about AMD's stack, from which the plan is made.
  type: dict
  returned: with O(stack=rocm)
  contains:
    driven:
      description: PCI addresses of the chips that the driver has made devices of.
      type: list
      elements: str
    disk:
      description: Version of the module on disk for the running kernel, empty for the kernel's own.
      type: str
    is_stale:
      description: Whether another module is loaded than the one on disk.
      type: bool
    rocm:
      description: Version of ROCm in C(/opt/rocm), empty for none.
      type: str
    blacklists:
      description: Lines that keep C(amdgpu) from loading, each with C(path), C(line) and C(text).
      type: list
      elements: dict
npus:
  description: What npu-smi lists, one entry for each chip, C(npu), C(chip), C(name), C(health) and C(address).
  type: list
  elements: dict
  returned: with O(stack=cann)
installed:
  description: What Huawei's installers have left on the host; empty for what is not there.
  type: dict
  returned: with O(stack=cann)
  contains:
    driver:
      description: Version of the driver on disk.
      type: str
      sample: 26.0.rc1
    complete:
      description: Whether its installation is complete.
      type: bool
    owner:
      description: The user for whom it was installed.
      type: str
    driver_firmwares:
      description: Versions of firmware that it takes.
      type: str
      sample: "[7.0.0,9.9.99]"
    firmware:
      description: Version of the firmware on disk.
      type: str
      sample: 9.0.0.0.205
    firmware_drivers:
      description: Versions of drivers that the firmware takes.
      type: str
    hdk:
      description: The release of driver and firmware that the firmware came with.
      type: str
    running:
      description: Version of the driver according to npu-smi.
      type: str
    running_firmware:
      description: Version of the firmware according to npu-smi.
      type: str
    group:
      description: The group of O(user), empty where there is no such user.
      type: str
    has_group:
      description: Whether O(group) is there.
      type: bool
    cann:
      description: Versions of C(toolkit), C(ops) and C(nnal), of those that are there.
      type: dict
fabric:
  description: The kind of switches that connect the chips, empty for none.
  type: str
  returned: with O(stack=cuda)
driver:
  description:
    - The driver that is loaded, C(version), empty where none is. For V(cuda) also its C(flavour), V(open) or
      V(proprietary); for V(rocm) whether one is C(loaded), because the kernel's own has no version.
  type: dict
  returned: success
  sample: {version: 580.159.04, flavour: open}
offered:
  description: Versions in the host's repositories of each package of O(offered_of).
  type: dict
  returned: success
contents:
  description: Contents of each file of O(contents_of), null for an unreadable one.
  type: dict
  returned: success
services:
  description: What systemd reports of the driver's services, by name. Only V(cuda) has some.
  type: dict
  returned: success
  sample: {nvidia-persistenced: active, nvidia-fabricmanager: inactive}
boot:
  description: The kernel's id of its boot.
  type: str
  returned: success
ansible_facts:
  description: Facts to add to the host.
  type: dict
  returned: success
  contains:
    accelerator_driver_version:
      description: Version of the driver that is loaded. Not set where none is.
      type: str
      sample: 580.159.04
    accelerator_rocm_version:
      description: Version of ROCm in user space.
      type: str
      sample: 10.0.0
    accelerator_mec_firmware:
      description: Version of the chips' MEC firmware, the lowest of all.
      type: int
      sample: 177
    accelerator_firmware_version:
      description: Version of the running firmware of Huawei's chips. Not set if it is unknown.
      type: str
      sample: 9.0.0.0.205
    accelerator_cann_version:
      description: Version of CANN's toolkit on the host. Not set where there is none.
      type: str
      sample: 9.1.0
active:
  description: Running units that use the chips. They are stopped before the driver is replaced.
  type: list
  elements: str
  returned: success
  sample: [vllm@chat.service, nvidia-persistenced.service]
holders:
  description: Processes that have a chip's device open, C(pid), C(command), C(unit) and C(path).
  type: list
  elements: dict
  returned: success
findings:
  description: Faults of the driver. Empty if there are none.
  type: list
  elements: dict
  returned: success
  contains:
    what:
      description: What is wrong.
      type: str
      sample: nvidia-smi lists 7 of 8 chips on PCI; the driver is not bound to it
    where:
      description: The place of the fault.
      type: str
      sample: chip 0000:5d:00.0
    action:
      description: What to do about it.
      type: str
later:
  description: What ends a driver that works now at a later boot, in the form of RV(findings).
  type: list
  elements: dict
  returned: success
  version_added: 0.7.0
summary:
  description: The findings as sentences for an error message. Empty if there are none.
  type: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accelerator.pci_host import PciError
from ..module_utils.cann import host as cann
from ..module_utils.cuda import host as cuda
from ..module_utils.rocm import host as rocm
from ..module_utils.vendor_stack.faults import NO_FAULTS, FaultBook
from ..module_utils.vendor_stack.state_module import ARGUMENTS, foreign_option

READ = {"cuda": cuda.read_state, "rocm": rocm.read_state, "cann": cann.read_state}


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "fault_path": {"type": "list", "elements": "path", "default": []}},
        supports_check_mode=True,
    )
    options = module.params
    wrong = foreign_option(options)
    if wrong:
        module.fail_json(msg=wrong)
    book = FaultBook.from_document(options["faults"]) if options["faults"] else NO_FAULTS
    try:
        state = READ[options["stack"]](options, book)
    except PciError as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(changed=False, **state)


if __name__ == "__main__":
    main()
