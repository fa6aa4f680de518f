#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: accelerator_info
short_description: Find the accelerators of a host and compare them with what was declared
version_added: 0.1.0
description:
  - Reads the PCI tree from sysfs and the processor from procfs. That needs no driver, no tool and no root on the host.
  - Looks the PCI ids up in the catalogue on the controller and sets the fact C(accelerator_detected).
  - A chip is a PCI function, so a card with two dies counts as two. Virtual functions are not counted beside the chip
    that they belong to, and a partitioned chip (MIG, CPX) counts as one.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.kernel_trees
options:
  declared:
    description:
      - The accelerator that the inventory declares for this host, a model of the catalogue or V(cpu).
      - It is an error if the host has another one.
    type: str
  declared_count:
    description:
      - The number of devices that the inventory declares for this host.
      - It is an error if the host has more or fewer.
    type: int
  declared_partition:
    description:
      - The modes of AMD's chips that the inventory declares, such as V(CPX/NPS4).
      - It is an error if the chips are in others; without it, if O(declared) is set and they are divided at all.
    type: str
    version_added: 0.10.0
  require_usable:
    description: Fail if vLLM cannot serve on this host. There is a chip that the catalogue does not know, or one that
      vLLM does not support, or no accelerator and an x86 processor without AVX2.
    type: bool
    default: false
  catalog_path:
    description: Directories on the controller with the site's own files, laid over C(catalog/accelerators) key by key.
      The first directory wins.
    type: list
    elements: path
    default: []
  vendors:
    description:
      - PCI vendor ids whose functions are worth reading, all if empty. Set from the catalogue; of no use in a playbook.
    type: list
    elements: str
    default: []
notes:
  - Memory is in MiB, as drivers count it. It is what AMD's driver reports in sysfs, and for other chips what the
    catalogue gives in GiB, of which a driver may report up to half a percent less.
"""

EXAMPLES = r"""
- name: Detect the accelerators of a host
  baremetal.inference.accelerator_info:

- name: Stop unless the host matches the inventory
  baremetal.inference.accelerator_info:
    declared: h200
    declared_count: 8
    require_usable: true

- name: Recognise a chip of the site's own catalogue
  baremetal.inference.accelerator_info:
    catalog_path:
      - "{{ inventory_dir }}/accelerators"
"""

RETURN = r"""
accelerator:
  description: The hardware of the host, also set as the fact C(accelerator_detected).
  type: dict
  returned: success
  contains:
    model:
      description:
        - The model that O(declared) names where the host has it, else the most numerous one of the catalogue, and among
          as many the one with more memory.
        - V(cpu) if there is no accelerator, V(unknown) if the catalogue knows none of those that are there.
      type: str
      sample: h200
    stack:
      description: The software stack that serves it.
      type: str
      sample: cuda
    generation:
      description: The generation of the chip.
      type: str
      sample: hopper
    vendor:
      description: The vendor's name in the catalogue.
      type: str
      sample: nvidia
    count:
      description: Number of devices of this model; 1 for V(cpu).
      type: int
      sample: 8
    memory_mib:
      description:
        - Memory of one device in MiB, of the smallest if they differ; the memory of the host for V(cpu).
        - Not set if it is a share of the host's memory.
      type: int
      sample: 144384
    compute_capability:
      description: NVIDIA's compute capability.
      type: str
      sample: "9.0"
    devices_per_card:
      description: Number of devices that make one card.
      type: int
      sample: 1
    driver_version:
      description: Version of the vendor's driver that is loaded. Not set where none is, or where it has no version.
      type: str
      sample: 580.159.04
    mec_firmware:
      description: Lowest version of the firmware of AMD's compute engine. Not set for others.
      type: int
      sample: 177
    partition:
      description: The modes of AMD's chips, each once. Not set where the driver shows none. RV(accelerator.count) and
        RV(accelerator.memory_mib) are those of whole chips.
      type: str
      sample: SPX/NPS1
      version_added: 0.10.0
    unsupported:
      description: Why vLLM cannot serve on this model. Not set if it can.
      type: str
    mixed:
      description: Whether there are several models, or unknown chips beside known ones.
      type: bool
    models:
      description: Number of devices of each model.
      type: dict
      sample: {h200: 8}
    numbers:
      description: The numbers that the vendor's tools give the devices of each model, where they list others beside
        them, of another model or ignored ones. Empty elsewhere.
      type: dict
      sample: {h100_nvl: [1, 2], l4: [0]}
    devices:
      description: The devices by PCI address.
      type: list
      elements: dict
      sample:
        - {address: "0000:17:00.0", vendor_id: 10de, device_id: "2335", class: "0302", model: h200, form: SXM,
           memory_mib: 144384, numa_node: 0}
    switches:
      description: The fabric switches (NVSwitch) by PCI address.
      type: list
      elements: dict
    unknown:
      description: Chips of known vendors that the catalogue does not know.
      type: list
      elements: dict
    cpu:
      description: The processors, and the memory of the host.
      type: dict
      sample:
        {arch: x86_64, model: AMD EPYC 9654 96-Core Processor, instruction_sets: [avx2, avx512f, avx512_bf16],
         cores: 192, threads: 384, numa_nodes: 2, memory_mib: 1547642}
    pythons:
      description: Paths of the Pythons in /usr/bin and /usr/local/bin, the one that C(python3) is first.
      type: list
      elements: str
      sample: [/usr/bin/python3.13]
      version_added: 0.7.0
    rdma:
      description: InfiniBand and RoCE devices whose first port is active, with PCI address, and how many PCI bridges
        each has in common with each device of RV(accelerator.model) below the same root port (C(near)). Not set where
        there is none.
      type: list
      elements: dict
      sample: [{name: mlx5_0, address: "0000:18:00.0", near: {"0000:17:00.0": 3}}]
      version_added: 0.7.0
ansible_facts:
  description: Facts to add to the host.
  type: dict
  returned: success
  contains:
    accelerator_detected:
      description: The same as RV(accelerator).
      type: dict
"""

import platform

from ..module_utils.accelerator.cpu_host import read_cpu
from ..module_utils.accelerator.drivers_host import read_drivers
from ..module_utils.accelerator.pci_host import KERNEL_TREES, read_functions
from ..module_utils.accelerator.pythons_host import read_pythons
from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.vllm.fabric_host import near_rdma


@door(DOCUMENTATION, others=KERNEL_TREES)
def main(module: AnsibleModule) -> Result:
    # The action plugin of the same name has the catalogue and handles the options that are not read below.
    functions = read_functions(module.params["sysfs_root"], module.params["vendors"])
    return {
        "functions": [function.as_dict() for function in functions],
        "cpu": read_cpu(module.params["proc_root"], module.params["sysfs_root"], platform.machine()).as_dict(),
        "drivers": read_drivers(module.params["sysfs_root"], module.params["proc_root"]),
        "pythons": read_pythons(),
        "rdma": near_rdma((function.address for function in functions), module.params["sysfs_root"]),
    }


if __name__ == "__main__":
    main()
