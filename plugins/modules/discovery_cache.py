#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: discovery_cache
short_description: Keep what hosts answered to M(baremetal.inference.accelerator_probe)
version_added: 0.3.0
description:
  - Merges the answers of all hosts of the play into a file on the controller, from which the inventory plugin of this
    collection sorts hosts. It touches no host and looks at all of them at once, so give it C(run_once).
  - A host that did not answer keeps its last answer, marked as stale with the time since when and the reason. Of a host
    that never answered nothing is kept.
  - Hosts outside of the play keep their answers. Hosts that are in the inventory no more are removed.
  - Shows a summary of how many hosts answered, which accelerators there are, whose answer is an old one and how old,
    and what is different from before.
  - The file says of each host when it last answered. An answer that is the same as before is a new time in the file and
    no change.
  - The file is replaced by rename. One that is damaged or of another version is named in a warning and made anew.
  - It is a failure if no host answered.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  path:
    description:
      - The file. Its directory is made where it is not there.
    type: path
    required: true
  answers:
    description:
      - Name of the variable that the task with M(baremetal.inference.accelerator_probe) registered.
    type: str
    required: true
  catalog_path:
    description:
      - Directories on the controller with the site's own files, laid over C(catalog/accelerators) key by key. Only the
        summary needs them.
    type: list
    elements: path
    default: []
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Ask each host what it has
  baremetal.inference.accelerator_probe:
  register: probe
  ignore_errors: true
  ignore_unreachable: true

- name: Keep the answers
  baremetal.inference.discovery_cache:
    path: "{{ inventory_dir }}/.discovery.json"
    answers: probe
  run_once: true
"""

RETURN = r"""
path:
  description: The file.
  type: str
  returned: always
answered:
  description: Number of hosts that answered.
  type: int
  returned: always
silent:
  description: The hosts that were asked in vain, with the reason of each.
  type: dict
  returned: always
  sample: {gpu-a-07: "Failed to connect to the host via ssh: ssh: connect to host gpu-a-07 port 22: Connection refused"}
stale:
  description: The hosts whose last answer is an old one, with the time of it and the reason.
  type: dict
  returned: always
  sample: {gpu-a-07: {at: "2026-11-20T02:00:00Z", reason: "ssh: connect to host gpu-a-07 port 22: Connection refused"}}
accelerators:
  description: Number of hosts in the file by what they have.
  type: dict
  returned: always
  sample: {h200 x 8: 20, cpu: 12}
changes:
  description:
    - The hosts of which something else is kept than before, by kind. These are V(new), V(changed), V(back) (answers
      again, as before), V(stale) (does not answer any more) and V(gone) (from the inventory).
  type: dict
  returned: always
  sample: {changed: [gpu-a-03], stale: [gpu-a-07]}
"""
