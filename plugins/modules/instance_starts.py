#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: instance_starts
short_description: (internal) Read how long the last start of each vLLM instance took, phase by phase
description: Reads the first 4 MiB that the present run of each instance of the role P(baremetal.inference.vllm#role)
  wrote to the journal. It changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
notes:
  - Reading the journal needs root (C(become)).
"""

EXAMPLES = "\n# playbooks/status.yml\n"

import platform

from ..module_utils.common.door import start_module
from ..module_utils.instance.start_phases_host import read_starts


def main() -> None:
    module = start_module(DOCUMENTATION)
    try:
        found = read_starts()
    except OSError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}")
    module.exit_json(changed=False, instances=found)


if __name__ == "__main__":
    main()
