#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: fleet_page
short_description: (internal) Show a fleet at a glance, as a table and as a page
description:
  - Shows for all hosts of the play which accelerators they have, how certain that is and which hosts need attention.
    The table has at most 60 lines, however many hosts there are; the page shows every host.
  - Runs on the controller for all hosts of the play at once and connects to no host, so use C(run_once). Its sources
    are the inventory, the caches of facts and of discovery, and group names.
  - A host has the first state that applies. C(conflict) - the declared and the found chips differ. C(unknown) - it has
    a chip that no file of the catalogue lists. C(stale) - the last probe got no answer. C(declared) - it was never
    probed. C(seen) - it was. C(nothing) - nothing is known about it.
  - With O(gateways), C(sick) comes before all of these - a gateway finds a server of the host down or sick, and
    C(drained) comes before C(declared) - a person or a rollout has taken a server of the host out of service.
  - The page is one file that needs no network. The same fleet gives the same page, so a second run changes nothing. It
    holds names, hardware, instances and their recipes and no secrets, so a new file is readable by everybody (mode
    0644); an existing file keeps its mode.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  page:
    description: File on the controller to write the page to; its directory must exist. No page is written when empty.
    type: path
    default: ""
  title:
    description: Title of the page.
    type: str
    default: The fleet
  gateways:
    description:
      - Results of M(baremetal.inference.gateway_server) by gateway. A gateway that was not read has no C(servers).
    type: dict
    default: {}
  answers:
    description: Results of M(baremetal.inference.endpoint) by host, one for each instance, of a site without gateways.
    type: dict
    default: {}
  installed:
    description: Results of M(baremetal.inference.instance_slot) without an instance, by host. They give the releases
      that are installed, and the state C(drifted), after C(drained), where a release or a file is not as planned.
    type: dict
    default: {}
  starts:
    description: Results of M(baremetal.inference.instance_starts) by host. Each instance has a line below the table.
    type: dict
    default: {}
  faults:
    description: Results of M(baremetal.inference.instance_faults) by host. Each service has its last fault.
    type: dict
    default: {}
"""

EXAMPLES = "\n# playbooks/fleet.yml\n"
