#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: acceptance_network
short_description: (internal) Measure the throughput of TCP between two hosts
description:
  - One host sends zeros to the first four connections to a port, the other one connects and counts.
  - A network that cannot be measured is not an error of the module. C(problem) says why.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  connect:
    description: The address of the host that sends. Without it, this host sends.
    type: str
    default: ""
  port:
    description: The port.
    type: int
    required: true
  seconds:
    description: How long to measure.
    type: float
    default: 10
"""

EXAMPLES = "\n# playbooks/accept.yml\n"

from dataclasses import asdict

from ..module_utils.acceptance.network_host import NetworkError, receive, serve
from ..module_utils.common.door import start_module

# Seconds to wait for the other host.
PATIENCE = 30.0


def main() -> None:
    module = start_module(DOCUMENTATION)
    connect, port, seconds = (module.params[name] for name in ("connect", "port", "seconds"))
    if module.check_mode:
        module.exit_json(changed=False, problem="", not_tried="check mode opens no connection")
    try:
        if not connect:
            module.exit_json(changed=False, problem="", streams=serve(port, seconds, PATIENCE))
        module.exit_json(changed=False, problem="", **asdict(receive(connect, port, seconds, PATIENCE)))
    except NetworkError as exc:
        module.exit_json(changed=False, problem=str(exc))


if __name__ == "__main__":
    main()
