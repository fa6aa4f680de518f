#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: chip_identity
short_description: Read serial numbers and firmware of a host's accelerators
version_added: 0.7.0
description:
  - Asks C(nvidia-smi) and C(npu-smi), and reads what amdgpu shows in sysfs. Changes nothing.
  - A chip without an answer is missing in the result. That is no error, because a host may have no driver yet.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  sysfs_root:
    description: Where sysfs is mounted.
    type: path
    default: /sys
"""

EXAMPLES = r"""
- name: Read serial numbers and firmware
  baremetal.inference.chip_identity:
  register: identity
"""

RETURN = r"""
chips:
  description: The chips by PCI address; a value that nobody knows is empty.
  type: list
  elements: dict
  returned: success
  sample:
    - {address: "0000:1b:00.0", serial: "1654523001234", firmware: 96.00.A5.00.1A}
problems:
  description: A line for each tool that gave no answer.
  type: list
  elements: str
  returned: success
"""

from ..module_utils.chip_identity.read_host import read_identities
from ..module_utils.common.door import AnsibleModule, Result, door


@door(DOCUMENTATION)
def main(module: AnsibleModule) -> Result:
    found = read_identities(module.params["sysfs_root"])
    return {"chips": [chip._asdict() for chip in found.chips], "problems": found.problems}


if __name__ == "__main__":
    main()
