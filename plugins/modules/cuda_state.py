#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_state
short_description: (internal) Inspect NVIDIA's driver on a host
version_added: 0.3.0
description:
  - Internal to the role P(baremetal.inference.cuda#role).
  - Reads the operating system, the kernels, the packages of NVIDIA's driver, the modules that are loaded and those on
    disk, what C(nvidia-smi) lists, the services and the kernel's log.
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
  fabric:
    description:
      - The kind of switches that connect the chips, V(none) for none.
      - By default it is detected. Switches of NVLink 5 are not detected if the ports that manage them cannot
        be read.
    type: str
    choices: [nvswitch, nvlink5, none]
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Inspect the driver
  baremetal.inference.cuda_state:
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
      description: Version and srcversion of those of C(nvidia), C(nouveau), C(mlx5_core), C(ib_umad) that are loaded.
      type: dict
    dkms:
      description: What DKMS has built, one entry for each module and kernel.
      type: list
      elements: dict
    holds:
      description: Names of packages that are held.
      type: list
      elements: str
chips:
  description: PCI addresses of NVIDIA's chips.
  type: list
  elements: str
  returned: success
gpus:
  description: What nvidia-smi lists, one entry for each chip, C(mig) among it.
  type: list
  elements: dict
  returned: success
fabric:
  description: The kind of switches that connect the chips, empty for none.
  type: str
  returned: success
driver:
  description: The driver that is loaded.
  type: dict
  returned: success
  contains:
    version:
      description: Its version, empty where none is loaded.
      type: str
      sample: 580.159.04
    flavour:
      description: V(open) or V(proprietary), empty where none is loaded or it does not say.
      type: str
offered:
  description: Versions in the host's repositories of each package of O(offered_of).
  type: dict
  returned: success
contents:
  description: Contents of each file of O(contents_of), null for an unreadable one.
  type: dict
  returned: success
services:
  description: What systemd says of the persistence daemon and the fabric manager, by name.
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

import re
from dataclasses import asdict, replace

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.accelerator.pci_host import PciError
from ..module_utils.cuda.answers import parse_query
from ..module_utils.cuda.chips import NVLINK5, NVSWITCH
from ..module_utils.cuda.host import inspect_host
from ..module_utils.cuda.proof import KIND, check_driver
from ..module_utils.vendor_stack.proof import loaded_version
from ..module_utils.vendor_stack.state_module import ARGUMENTS, common_state

NO_FABRIC = "none"
NODES = re.compile(r"/dev/nvidia")


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "fabric": {"type": "str", "choices": [NVSWITCH, NVLINK5, NO_FABRIC]}},
        supports_check_mode=True,
    )
    options = module.params
    try:
        recording = inspect_host(options["root"], options["sysfs_root"], options["proc_root"])
    except PciError as exc:
        module.fail_json(msg=str(exc))
    if options["fabric"]:
        recording = replace(recording, fabric="" if options["fabric"] == NO_FABRIC else options["fabric"])
    findings = check_driver(recording, options["minimum_driver"], options["hold"])
    version = loaded_version(KIND, recording.host)
    module.exit_json(
        changed=False,
        ansible_facts={"accelerator_driver_version": version} if version else {},
        chips=recording.chips,
        gpus=[asdict(gpu) for gpu in parse_query(recording.query.out)],
        fabric=recording.fabric,
        driver={"version": version, "flavour": recording.flavour},
        services=recording.services,
        **common_state(options, recording.host, findings, NODES),
    )


if __name__ == "__main__":
    main()
