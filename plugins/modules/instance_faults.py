#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: instance_faults
short_description: (internal) Read the last fault that the health service has found for each vLLM instance
description: Reads the newest 200 faults in the journal of the role P(baremetal.inference.health#role). It changes
  nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
notes:
  - Reading the journal needs root (C(become)).
"""

EXAMPLES = "\n# playbooks/status.yml\n"

from ..module_utils.common.door import AnsibleModule, Result, door
from ..module_utils.health.last_faults_host import read_last_faults


@door(DOCUMENTATION, OSError)
def main(_module: AnsibleModule) -> Result:
    return {"instances": read_last_faults()}


if __name__ == "__main__":
    main()
