#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: rollout_report
short_description: (internal) Write the report of a rollout as JSON and as a page
description:
  - Reads the journal of a rollout (role P(baremetal.inference.rollout#role)), finished, interrupted or running, and
    reports what changed where, how long each step of each host took, what the gates measured before and after, and how
    many requests the gateways served and failed meanwhile.
  - Runs on the controller and touches no host, so give it C(run_once). It changes nothing but its two files; it may be
    run again at any time, and the same journal gives the same files.
  - The page is one file that needs no network. The files may be read by their owner alone (mode 0600), because they
    hold errors of hosts in full; an existing file keeps its mode.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  journal:
    description: The journal, C(journal.jsonl), or the directory of the rollout that holds it. A last line that was cut
      off is left out.
    type: path
    required: true
  dest_json:
    description: File to write the document to; its directory must exist. When empty, none is written.
    type: path
    default: ""
  dest_html:
    description: File to write the page to; its directory must exist. When empty, none is written.
    type: path
    default: ""
"""

EXAMPLES = "\n# roles/rollout/tasks/finish.yml\n"
