#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: provision_hosts
short_description: (internal) Write an operating system to servers that are switched off
version_added: 0.9.0
description:
  - Gives Ironic the servers that the variable C(provision) of the hosts describes, and waits until the new system of
    each host answers SSH with the host key that it was given. One process on the controller polls all hosts, so use
    C(run_once).
  - A host that answers SSH is not written unless it is in O(release). A run that was stopped is taken up by the next
    one, in every state. A host whose system is there is not changed.
  - Check mode asks the BMCs and names the disk and the server that would be written.
  - The failure of a host is in C(hosts) and does not stop the others.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.ironic_and_bmcs
options:
  release:
    description: Hosts that may be written although they answer SSH, are switched on or have a system.
    type: list
    elements: str
    default: []
  ssh_keys:
    description: Public keys of those who may log in to the new hosts.
    type: list
    elements: str
    required: true
  user:
    description: The user who gets these keys; another one than root may use sudo without a password.
    type: str
    default: root
  private_key:
    description: File of the private key with which the controller logs in; ssh chooses when empty.
    type: path
    default: ""
  record:
    description: File of the inventory that notes what was written where.
    type: path
    required: true
  known_hosts:
    description: File of known hosts that gets the keys of the new hosts.
    type: path
    default: ~/.ssh/known_hosts
  deadlines:
    description: Seconds that a phase may take, by phase. Phases are C(enroll), C(prepare), C(order), C(ramdisk),
      C(write), C(boot), C(erase).
    type: dict
    default: {}
  keep_node:
    description: Whether Ironic keeps the node of a host after handing it over, with the BMC's password.
    type: bool
    default: false
"""

EXAMPLES = "\n# playbooks/provision.yml\n"
