#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: accelerator_probe
short_description: (internal) Ask a host with one command which accelerators it has
description:
  - Runs a small script in the shell of the host. It reads the PCI tree, the processor, the memory and the versions of
    drivers from sysfs and procfs. The host needs a POSIX shell, C(sed) and C(uname), no Python and no tool of a vendor.
  - The script goes over the connection with the command that runs it, so a host costs one round trip. It runs as the
    user who logs in, privileges are not raised.
  - Gives the same answer as M(baremetal.inference.accelerator_info), which is what the role
    P(baremetal.inference.accelerator#role) compares with the inventory. Here nothing is compared and no fact is set.
  - Where the kernel tells the memory of a chip (amdgpu), that goes before the nominal memory of the catalogue.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.kernel_trees
options:
  catalog_path:
    description: Directories on the controller with the site's own files, laid over C(catalog/accelerators) key by key.
      The first directory wins.
    type: list
    elements: path
    default: []
notes:
  - Virtual functions beside the chip that they belong to are left out, and so are devices that every server has
    (storage, network, bridges) unless the catalogue lists them.
"""

EXAMPLES = "\n# playbooks/discover.yml\n"
