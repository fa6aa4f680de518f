#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cann_state
short_description: (internal) Inspect Huawei's driver and firmware on a host
version_added: 0.4.0
description:
  - Internal to the role P(baremetal.inference.cann#role).
  - Reads the operating system, the kernels, the packages of Huawei's driver, what its installers have left, the modules
    that are loaded and those on disk, what C(npu-smi) lists, the devices and their user.
  - Returns findings, each with what to do. A host without faults has no findings.
  - Fails only if the host cannot be read. Findings are not an error of the module.
  - Changes nothing.
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
  cann_version:
    description:
      - The version of CANN that the release belongs to. Checked with O(toolkit) only. Any version if empty.
    type: str
    default: ""
  toolkit:
    description:
      - Whether CANN itself (toolkit, operators, NNAL) must be on the host. Containers have their own.
    type: bool
    default: false
  user:
    description:
      - The user for whom the driver is installed.
    type: str
    default: HwHiAiUser
  group:
    description:
      - The group of O(user), which may open the chips' devices.
    type: str
    default: HwHiAiUser
  nodes:
    description:
      - Devices that must exist. By default C(/dev/davinci_manager) and one for each chip on PCI.
    type: list
    elements: str
    default: []
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Inspect driver and firmware
  baremetal.inference.cann_state:
    minimum_driver: 26.0.rc1
  become: true
  register: driver

- name: Stop if they have faults
  ansible.builtin.assert:
    that: driver.findings | length == 0
    fail_msg: "{{ driver.summary }}"
"""

RETURN = r"""
host:
  description: What is known of the host, as of M(baremetal.inference.cuda_state).
  type: dict
  returned: success
chips:
  description: PCI addresses of Huawei's chips.
  type: list
  elements: str
  returned: success
npus:
  description: What npu-smi lists, one entry for each chip, C(npu), C(chip), C(name), C(health) and C(address).
  type: list
  elements: dict
  returned: success
installed:
  description: What Huawei's installers have left on the host; empty for what is not there.
  type: dict
  returned: success
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
driver:
  description: The C(version) of the driver that runs, empty where none does.
  type: dict
  returned: success
services:
  description: Services of the driver by name. Huawei's has none.
  type: dict
  returned: success
offered:
  description: Versions in the host's repositories of each package of O(offered_of).
  type: dict
  returned: success
contents:
  description: Contents of each file of O(contents_of), null for an unreadable one.
  type: dict
  returned: success
boot:
  description: The kernel's id of its boot.
  type: str
  returned: success
active:
  description: Running units that use the chips. They are stopped before the driver is replaced.
  type: list
  elements: str
  returned: success
holders:
  description: Processes that have a chip's device open, C(pid), C(command), C(unit) and C(path).
  type: list
  elements: dict
  returned: success
ansible_facts:
  description: Facts to add to the host.
  type: dict
  returned: success
  contains:
    accelerator_driver_version:
      description: Version of the driver that runs. Not set where none does.
      type: str
      sample: 26.0.rc1
    accelerator_firmware_version:
      description: Version of the running firmware. Not set if it is unknown.
      type: str
      sample: 9.0.0.0.205
    accelerator_cann_version:
      description: Version of CANN's toolkit on the host. Not set where there is none.
      type: str
      sample: 9.1.0
findings:
  description: Faults of the driver. Empty if there are none.
  type: list
  elements: dict
  returned: success
  contains:
    what:
      description: What is wrong.
      type: str
      sample: npu-smi lists 7 of 8 chips on PCI; the driver is not bound to it
    where:
      description: The place of the fault.
      type: str
      sample: chip 0000:c1:00.0
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
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accelerator.pci_host import PciError
from ..module_utils.cann.answers import parse_table
from ..module_utils.cann.host import inspect_host
from ..module_utils.cann.installers import USER
from ..module_utils.cann.proof import KIND, CannRecording, Expected, check_driver
from ..module_utils.vendor_stack.state_module import ARGUMENTS, common_state

NODES = re.compile(r"/dev/(davinci|devmm_svm|hisi_hdc)")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "cann_version": {"type": "str", "default": ""},
            "toolkit": {"type": "bool", "default": False},
            "user": {"type": "str", "default": USER},
            "group": {"type": "str", "default": USER},
            "nodes": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    options = module.params
    user, group = options["user"], options["group"]
    try:
        recording = inspect_host(options["root"], options["sysfs_root"], options["proc_root"], user, group)
    except PciError as exc:
        module.fail_json(msg=str(exc))
    expected = Expected(
        options["minimum_driver"],
        options["cann_version"],
        options["toolkit"],
        user,
        group,
        options["hold"],
        tuple(options["nodes"]),
    )
    findings = check_driver(recording, expected)
    module.exit_json(
        changed=False,
        ansible_facts=facts(recording),
        chips=recording.chips,
        npus=[asdict(row) for row in parse_table(recording.table.out)],
        installed=recording.installed.as_dict(),
        driver={"version": running_driver(recording)},
        services={},
        **common_state(options, recording.host, findings, NODES),
    )


def running_driver(recording: CannRecording) -> str:
    """Return the version of the running driver, empty if none runs; npu-smi may not report it."""
    installed = recording.installed
    return installed.running or (installed.driver if KIND.module in recording.host.modules else "")


def facts(recording: CannRecording) -> dict[str, str]:
    """Return the facts of a host; missing parts have none."""
    installed = recording.installed
    found = {
        "accelerator_driver_version": running_driver(recording),
        "accelerator_firmware_version": installed.running_firmware or installed.firmware,
        "accelerator_cann_version": installed.cann.get("toolkit", ""),
    }
    return {name: version for name, version in found.items() if version}


if __name__ == "__main__":
    main()
