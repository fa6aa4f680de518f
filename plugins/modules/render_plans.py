#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: render_plans
short_description: (internal) Write the plans and files of all hosts of a play
description:
  - Writes for every instance of every host of the play C(DEST/HOST/INSTANCE/plan.json) and below
    C(DEST/HOST/INSTANCE/files/) the files that the role P(baremetal.inference.vllm#role) would install, under
    their paths. Secrets are not written.
  - Runs on the controller over all hosts of the play at once and contacts no host, so set C(run_once). Hosts whose
    variables are the same are planned once.
  - The accelerator of a host comes from its variable C(accelerator) (with C(accelerator_count), else one chip and a
    warning), then from a group C(accel_MODEL), then from the cached fact C(accelerator_detected). A group C(accel_...)
    that the catalogue does not know is an error.
  - If any host cannot be planned, one error lists all problems, and nothing is written. A host without
    C(vllm_instances) is named and skipped, with a separate warning if it has an accelerator. Files that an earlier
    run left for a host of the play are removed.
extends_documentation_fragment: baremetal.inference.attributes.full
options:
  dest:
    description: Directory on the controller to write into. It is created if it does not exist.
    type: path
    required: true
  commands:
    description:
      - Also show the command of each different plan, with its variables but without secrets, as one line for a shell.
    type: bool
    default: false
"""

EXAMPLES = "\n# playbooks/render.yml\n"
