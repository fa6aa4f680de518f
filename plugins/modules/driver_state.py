#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: driver_state
short_description: (internal) Inspect a vendor's driver on a host
description:
  - Reads the operating system, the kernels, the packages of the driver, the modules that are loaded and those on disk,
    what the vendor's tool lists, devices and services, and the kernel's log.
  - Returns findings, each with what to do. A host without faults has no findings.
  - Fails only if the host cannot be read. Findings are not an error of the module.
  - Changes nothing. Without root, the kernel's log and MOK keys count as empty.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.kernel_trees
options:
  stack:
    description: The stack whose driver is inspected. Options of other stacks are an error.
    type: str
    choices: [cuda, rocm, cann]
    required: true
  faults:
    description: What the kernel's log can report of the chips, and what to do about each. The action plugin fills it
      from the catalogue of faults and O(fault_path).
    type: dict
    default: {}
  fault_path:
    description: Directories with the site's own files of the catalogue of faults.
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
  memory:
    description: The memory that each chip should have, in MiB by PCI address. A chip with much less is a finding.
    type: dict
  chips:
    description:
      - PCI addresses of the chips that programs need.
      - By default those of all of AMD's graphics and accelerators, also of a chip that only drives the console.
    type: list
    elements: str
  userspace:
    description: Whether ROCm in user space is requested. If so, a missing C(amd-smi) and C(rocm-smi) is a finding. By
      default it is not.
    type: bool
  partition:
    description: How chips are divided in plans, such as V(CPX/NPS4) or V(7x1g.10gb). A chip that is divided otherwise
      is a finding. By default whole chips.
    type: str
  users:
    description: Names of users whose groups are returned.
    type: list
    elements: str
  cann_version:
    description: The version of CANN that the release belongs to. Checked with O(toolkit) only. Any version if empty.
    type: str
  toolkit:
    description: Whether CANN itself (toolkit, operators, NNAL) must be on the host. By default it need not, because
      containers have their own.
    type: bool
  user:
    description: The user for whom the driver is installed, by default C(HwHiAiUser).
    type: str
  group:
    description: The group of O(user), which may open the chips' devices, by default C(HwHiAiUser).
    type: str
  nodes:
    description: Devices that must exist. By default C(/dev/davinci_manager) and one for each chip on PCI.
    type: list
    elements: str
  minimum_driver:
    description: The oldest driver that the release of vLLM works with. Any version if empty.
    type: str
    default: ""
  hold:
    description: Whether packages of the driver that an upgrade may replace are a finding.
    type: bool
    default: true
  offered_of:
    description: Names of packages whose versions in the host's repositories are returned.
    type: list
    elements: str
    default: []
  contents_of:
    description: Paths of text files on the host whose contents are returned.
    type: list
    elements: path
    default: []
  root:
    description: Root of the host's files. Tests use another tree.
    type: path
    default: /
"""

EXAMPLES = "\n# roles/cann/tasks/inspect.yml\n"

from ..module_utils.accelerator.pci_host import KERNEL_TREES
from ..module_utils.cann import host as cann
from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.cuda import host as cuda
from ..module_utils.rocm import host as rocm
from ..module_utils.vendor_stack.faults import NO_FAULTS, FaultBook
from ..module_utils.vendor_stack.state_module import foreign_option

READ = {"cuda": cuda.read_state, "rocm": rocm.read_state, "cann": cann.read_state}


@door(DOCUMENTATION, others=KERNEL_TREES)
def main(module: AnsibleModule) -> Result:
    options = module.params
    wrong = foreign_option(options)
    if wrong:
        module.fail_json(msg=wrong)
    book = FaultBook.from_document(options["faults"]) if options["faults"] else NO_FAULTS
    return READ[options["stack"]](options, book)


if __name__ == "__main__":
    main()
