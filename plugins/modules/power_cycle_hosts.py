#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: power_cycle_hosts
short_description: (internal) Switch hosts whose chips are lost off and on again
version_added: 0.11.0
description:
  - Keeps the logs of the BMC of each host in O(faults), stops its system, switches the server off and on by Ironic, and
    waits until its system answers SSH. One process on the controller polls all hosts, so use C(run_once).
  - Another server behind the address of the BMC is refused, and so is one that somebody has switched off. A run that
    was stopped is taken up by the next one.
  - Check mode asks the BMCs and names what would be done.
  - The failure of a host is in C(hosts) and does not stop the others.
extends_documentation_fragment:
  - baremetal.inference.attributes.no_diff
  - baremetal.inference.ironic_and_bmcs
options:
  faults:
    description: What C(vllm-health boot-faults) printed on each host, the faults that only a new start of it ends.
    type: dict
    required: true
  logs:
    description: Directory on the controller for the logs of the BMCs.
    type: path
    required: true
  record:
    description: File of the inventory that notes which server is switched off by this module.
    type: path
    required: true
  deadlines:
    description: Seconds that a phase may take, by phase. Phases are C(enroll), C(stop), C(power_off), C(off),
      C(power_on) and C(boot).
    type: dict
    default: {}
"""

EXAMPLES = "\n# playbooks/power_cycle.yml\n"
