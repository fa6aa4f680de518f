#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: discovery_cache
short_description: (internal) Store the answers of hosts to M(baremetal.inference.accelerator_probe)
description:
  - Merges the answers of all hosts of the play into a file on the controller, from which the inventory plugin of this
    collection sorts hosts. It connects to no host and handles all of them at once, so use C(run_once).
  - A host that did not answer keeps its last answer, marked as stale with a time and the reason. Nothing is stored for
    a host that never answered.
  - Hosts outside of the play keep their answers. Hosts that are no longer in the inventory are removed.
  - Shows a summary of how many hosts answered, which accelerators there are, which answers are stale and how old, and
    what has changed.
  - The file has the time of each host's last answer. An unchanged answer updates this time and counts as no change.
  - The file is replaced in one step. A damaged file, or one of another version, is reported in a warning and rebuilt.
  - Fails if no host answered.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  path:
    description: The file. Its directory is created if it is missing.
    type: path
    required: true
  answers:
    description: Name of the variable that the task with M(baremetal.inference.accelerator_probe) registered.
    type: str
    required: true
  catalog_path:
    description: Directories on the controller with the site's own files, merged over C(catalog/accelerators) key by
      key. Only the summary needs them.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# playbooks/discover.yml\n"
