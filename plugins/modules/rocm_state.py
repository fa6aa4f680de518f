#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rocm_state
short_description: (internal) Inspect AMD's driver on a host
version_added: 0.4.0
description:
  - Internal to the role P(baremetal.inference.rocm#role).
  - Reads the operating system, the kernels, the packages of AMD's driver, the module that is loaded and those on disk,
    which chips C(amd-smi), C(rocm-smi) or the kernel itself lists, the device nodes, what keeps C(amdgpu) from loading,
    and the kernel's log.
  - Returns findings, each with what to do. A host without faults has no findings.
  - Fails only if the host cannot be read. Findings are not an error of the module.
  - Changes nothing. Without root, the kernel's log and MOK keys count as empty.
extends_documentation_fragment:
  - baremetal.inference.attributes
  - baremetal.inference.kernel_trees
  - baremetal.inference.stack_state
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  chips:
    description:
      - PCI addresses of the chips that programs need.
      - By default those of all of AMD's graphics and accelerators, also of a chip that only drives the console.
    type: list
    elements: str
    default: []
  userspace:
    description:
      - Whether ROCm in user space is requested. If so, a missing C(amd-smi) and C(rocm-smi) is a finding.
    type: bool
    default: false
  users:
    description:
      - Names of users whose groups are returned.
    type: list
    elements: str
    default: []
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Inspect the driver
  baremetal.inference.rocm_state:
    minimum_driver: 6.14.14
  become: true
  register: driver

- name: Stop if it has faults
  ansible.builtin.assert:
    that: driver.findings | length == 0
    fail_msg: "{{ driver.summary }}"
"""

RETURN = r"""
host:
  description: What is known of the host, as M(baremetal.inference.cuda_state) returns it.
  type: dict
  returned: success
  contains:
    packages:
      description: Versions of installed packages of kernels, the driver, ROCm and what they need, by name.
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
      description: Those of the groups C(render) and C(video) that there are, with their members.
      type: dict
    users:
      description: Of O(users) those that there are, with the name of their own group.
      type: dict
chips:
  description: PCI addresses of AMD's chips.
  type: list
  elements: str
  returned: success
gpus:
  description: The chips that can be used, each with C(address), C(name), C(generation) and C(driver_version).
  type: list
  elements: dict
  returned: success
listed_by:
  description: The source of this list, C(amd-smi), C(rocm-smi) or the kernel.
  type: str
  returned: success
shown:
  description: Further facts about AMD's stack, from which the plan is made.
  type: dict
  returned: success
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
driver:
  description: The driver that is loaded.
  type: dict
  returned: success
  contains:
    version:
      description: Its version, empty where none is loaded or where it is the kernel's own.
      type: str
      sample: 6.16.13
    loaded:
      description: Whether one is loaded.
      type: bool
offered:
  description: Versions in the host's repositories of each package of O(offered_of).
  type: dict
  returned: success
contents:
  description: Contents of each file of O(contents_of), null for an unreadable one.
  type: dict
  returned: success
services:
  description: The driver has none.
  type: dict
  returned: success
boot:
  description: The kernel's id of its boot.
  type: str
  returned: success
ansible_facts:
  description: Facts to add to the host, those that are known.
  type: dict
  returned: success
  contains:
    accelerator_driver_version:
      description: Version of the driver that is loaded. The kernel's own has none.
      type: str
      sample: 6.16.13
    accelerator_rocm_version:
      description: Version of ROCm in user space.
      type: str
      sample: 10.0.0
    accelerator_mec_firmware:
      description: Version of the chips' MEC firmware, the lowest of all.
      type: int
      sample: 177
active:
  description: Running units that use the chips. They are stopped before the driver is replaced.
  type: list
  elements: str
  returned: success
  sample: [vllm@chat.service]
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
      sample: amd-smi lists 7 of 8 chips on PCI; the driver is not bound to it
    where:
      description: The place of the fault.
      type: str
      sample: chip 0000:85:00.0
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

import re
from dataclasses import asdict, replace

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accelerator.drivers_host import read_drivers
from ..module_utils.accelerator.pci_host import PciError
from ..module_utils.rocm.host import inspect_host
from ..module_utils.rocm.proof import KIND, check_driver, listed
from ..module_utils.vendor_stack.proof import loaded_version
from ..module_utils.vendor_stack.state_module import ARGUMENTS, common_state

WORDS = {"type": "list", "elements": "str", "default": []}
# Every program that computes has it open. A desktop has only render nodes open; then the module cannot be unloaded.
NODES = re.compile(r"/dev/kfd$")


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "chips": WORDS, "users": WORDS, "userspace": {"type": "bool", "default": False}},
        supports_check_mode=True,
    )
    options = module.params
    names = ("root", "sysfs_root", "proc_root", "chips", "users")
    try:
        recording = inspect_host(**{name: options[name] for name in names})
    except PciError as exc:
        module.fail_json(msg=str(exc))
    recording = replace(recording, wants_tools=options["userspace"])
    who, gpus = listed(recording)
    version = loaded_version(KIND, recording.host)
    facts = {
        "accelerator_driver_version": version,
        "accelerator_rocm_version": recording.shown.rocm,
        "accelerator_mec_firmware": read_drivers(options["sysfs_root"]).get("amd", {}).get("mec_firmware"),
    }
    findings = check_driver(recording, options["minimum_driver"], options["hold"])
    module.exit_json(
        changed=False,
        ansible_facts={name: value for name, value in facts.items() if value},
        chips=recording.chips,
        gpus=[asdict(gpu) for gpu in gpus],
        listed_by=who,
        shown=recording.shown.as_dict(),
        driver={"version": version, "loaded": KIND.module in recording.host.modules},
        services={},
        **common_state(options, recording.host, findings, NODES),
    )


if __name__ == "__main__":
    main()
