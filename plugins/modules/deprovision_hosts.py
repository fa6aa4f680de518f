#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: deprovision_hosts
short_description: (internal) Wipe, switch off and forget the servers that provision.yml wrote
version_added: 0.10.0
description:
  - Stops the system of each host, lets Ironic's agent wipe the named disks, switches the server off, and removes the
    node from Ironic, the SSH host key from the known hosts and the host from the record. One process on the controller
    polls all hosts, so use C(run_once).
  - A host that answers SSH or is switched on is not touched unless it is in O(release). A run that was stopped is taken
    up by the next one. A host without a record is not changed.
  - Check mode asks the BMCs and names what would be done.
  - The failure of a host is in C(hosts) and does not stop the others.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.ironic_and_bmcs
options:
  release:
    description: Hosts that may be removed although they answer SSH, are switched on or have no record.
    type: list
    elements: str
    default: []
  disks:
    description: Serial numbers or WWNs of the disks to wipe, by host; else the disk of C(provision).
    type: dict
    default: {}
  secure:
    description: Whether all content of these disks is erased, and not only partition tables and metadata.
    type: bool
    default: false
  user:
    description: The user who may log in to the hosts.
    type: str
    default: root
  private_key:
    description: File of the private key with which the controller logs in; ssh chooses when empty.
    type: path
    default: ""
  record:
    description: File of the inventory that notes what was written where; the hosts are removed from it.
    type: path
    required: true
  known_hosts:
    description: File of known hosts from which the keys of the hosts are removed.
    type: path
    default: ~/.ssh/known_hosts
  deadlines:
    description: Seconds that a phase may take, by phase. Phases are C(enroll), C(stop), C(wipe), C(power_off).
    type: dict
    default: {}
"""

EXAMPLES = "\n# playbooks/deprovision.yml\n"
