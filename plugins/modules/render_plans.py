#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: render_plans
short_description: Write what every host of a play would be served with
version_added: 0.2.0
description:
  - Writes for every instance of every host of the play C(DEST/HOST/INSTANCE/plan.json) and below
    C(DEST/HOST/INSTANCE/files/) the files that the role P(baremetal.inference.vllm#role) would install, at their
    places. Secrets are not written.
  - Runs on the controller over all hosts of the play at once and touches no host, so give it C(run_once). Hosts whose
    variables are the same cost one plan.
  - The accelerator of a host is what its variable C(accelerator) says (with C(accelerator_count), else 1), else the
    model that a group C(accel_MODEL) names, else the cached fact C(accelerator_detected).
  - The problems of all hosts are one error, and nothing is written then. A host without C(vllm_instances) is named
    and skipped. Files that an earlier run left for a host of the play are removed.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  dest:
    description:
      - Directory on the controller to write into. It is made where it is not there.
    type: path
    required: true
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Write the plans and the files of every instance
  baremetal.inference.render_plans:
    dest: rendered
  run_once: true
"""

RETURN = r"""
hosts:
  description: Number of hosts that have instances.
  type: int
  returned: success
instances:
  description: Number of their instances.
  type: int
  returned: success
written:
  description: Files that were written, or would be in check mode, relative to the directory.
  type: list
  elements: str
  returned: success
removed:
  description: Files of an earlier run that were removed, or would be.
  type: list
  elements: str
  returned: success
"""
