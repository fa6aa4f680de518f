#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: netbox_items
short_description: Write the accelerators of hosts into NetBox as inventory items
version_added: 0.7.0
description:
  - Internal to the playbook C(baremetal.inference.netbox).
  - Compares what was found on all hosts of the play with the inventory items of their devices in NetBox, and creates,
    changes and removes items. It connects to no host and handles all of them at once, so use C(run_once).
  - One item for each accelerator, called C(accelerator ADDRESS) after its PCI address, with PCI id, serial number,
    manufacturer, and a description of model, firmware and driver.
  - Only items with the tag C(baremetal-inference) are changed or removed. The tag and the manufacturers are created
    where they are missing.
  - The token, of version 1 or 2, is in Ansible's variable C(netbox_token), or in C(NETBOX_TOKEN) of the environment.
  - A host that did not answer, and one that NetBox has no device for, causes a warning; nothing is written for it.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  url:
    description:
      - Address of NetBox. Default is the variable C(NETBOX_API) of the environment.
    type: str
    default: ""
  ca_file:
    description:
      - A PEM file of authorities that are trusted beside the system's.
    type: path
    default: ""
  hardware:
    description:
      - Name of the variable that the task with M(baremetal.inference.accelerator_info) registered.
    type: str
    required: true
  identity:
    description:
      - Name of the variable that the task with M(baremetal.inference.chip_identity) registered.
    type: str
    required: true
  device_names:
    description:
      - The name of the device in NetBox by host, where the two differ.
    type: dict
    default: {}
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Write the accelerators into NetBox
  baremetal.inference.netbox_items:
    url: https://netbox.example.com
    hardware: hardware
    identity: identity
  run_once: true
"""

RETURN = r"""
changes:
  description: A line for each item that was created, changed or removed, or would be.
  type: list
  elements: str
  returned: success
  sample:
    - "gpu-a-01: accelerator 0000:1b:00.0: serial 1654523001234 -> 1654523009876"
devices:
  description: The devices that were compared.
  type: list
  elements: str
  returned: success
missing:
  description: Names that NetBox has no device for.
  type: list
  elements: str
  returned: success
"""

# The action plugin of the same name decides and writes.
