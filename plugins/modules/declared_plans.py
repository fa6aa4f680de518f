#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: declared_plans
short_description: (internal) Plan the hosts of a play whose hardware is declared, before any host is contacted
description:
  - Plans the instances of all hosts of the play that declare their hardware (C(accelerator) and
    C(accelerator_count)), and fails with the
    problems of all of them, such as a misspelt option, a flag that the release does not know, or a model that does not
    fit.
  - Warns of hosts that have an accelerator and no C(vllm_instances).
  - Leaves out hosts that declare nothing, and hosts whose variables need their facts; these are planned once they have
    been contacted.
  - Runs on the controller over all hosts of the play at once and contacts no host, so set C(run_once).
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options: {}
"""

EXAMPLES = "\n# playbooks/rollout.yml\n"
