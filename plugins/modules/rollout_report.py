#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_report
short_description: (internal) Write the report of a rollout as JSON and as a page
version_added: 0.6.0
description:
  - Internal to the role P(baremetal.inference.rollout#role).
  - Reads the journal of a rollout (role P(baremetal.inference.rollout#role)), finished, interrupted or running, and
    reports what changed where, how long each step of each host took, what the gates measured before and after, and how
    many requests the gateways served and failed meanwhile.
  - Runs on the controller and touches no host, so give it C(run_once). It changes nothing but its two files; it may be
    run again at any time, and the same journal gives the same files.
  - The page is one file that needs no network. The files may be read by their owner alone (mode 0600), because they
    hold errors of hosts in full; an existing file keeps its mode.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
    details: The journal is the shorter text.
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
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Write the report of a rollout
  baremetal.inference.rollout_report:
    journal: "{{ rollout_dir }}/journal.jsonl"
    dest_json: "{{ rollout_dir }}/report.json"
    dest_html: "{{ rollout_dir }}/report.html"
  run_once: true
"""

RETURN = r"""
summary:
  description: What became of it. All of it is in the document.
  returned: success
  type: dict
  contains:
    id:
      description: Name of the rollout.
      type: str
    kind:
      description: V(change), V(rollback) or V(resumed).
      type: str
    user:
      description: Who began it.
      type: str
    clusters:
      description: Where.
      type: list
      elements: str
    summary:
      description: What changes, in words.
      type: str
    result:
      description: V(done), V(stopped), V(failed), V(interrupted) (it broke off) or V(running).
      type: str
    reason:
      description: Why it stopped; empty where it did not.
      type: str
    began:
      description: When it began, in seconds since 1970.
      type: float
    ended:
      description: When it ended; null where it has not.
      type: float
    seconds:
      description: How long it ran; the time between an interruption and the run that went on is not in it.
      type: float
    totals:
      description: Number of C(hosts), and how many of them are C(done), C(failed), C(rolled_back), C(skipped), C(out),
        C(unfinished) (in the middle of a turn) and C(untouched).
      type: dict
    requests:
      description: What the gateways counted during it, as C(requests), C(ok), C(client_errors), C(server_errors) and
        C(denied).
      type: dict
    steps:
      description: For each step C(count), C(median_s), C(max_s) and C(max_host).
      type: dict
    failed:
      description: Hosts whose turn ended badly, each with the reason.
      type: dict
    unfinished:
      description: Hosts that were in the middle of their turn.
      type: list
      elements: str
"""
