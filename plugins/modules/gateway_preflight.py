#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_preflight
short_description: Look at a host before it is made a gateway
version_added: 0.5.0
description:
  - Checks that the ports of the gateway are free or its own.
  - Says which of its programs are installed, and whether HAProxy runs with what is on the disk.
  - Changes nothing.
extends_documentation_fragment:
  - baremetal.inference.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  ports:
    description:
      - TCP ports that are wanted, each with the option of the role that names it.
    type: dict
    required: true
  socket:
    description:
      - Admin socket of HAProxy.
    type: path
    required: true
    version_added: 0.7.0
  files:
    description:
      - Files that HAProxy reads when a worker starts, and not again.
    type: list
    elements: path
    required: true
    version_added: 0.7.0
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Look at the ports
  baremetal.inference.gateway_preflight:
    ports:
      443: gateway_port
      8404: gateway_stats_port
    socket: /run/haproxy/admin.sock
    files: [/etc/haproxy/haproxy.cfg]
"""

RETURN = r"""
haproxy:
  description: Whether HAProxy is installed.
  type: bool
  returned: success
keepalived:
  description: Whether keepalived is installed.
  type: bool
  returned: success
unread:
  description:
    - Those of O(files) that are newer than the worker of HAProxy that runs.
    - It goes on with what it has read where a new one could not start, or where a run ended before the reload.
  type: list
  elements: str
  returned: success
  version_added: 0.7.0
shares_address:
  description: Whether keepalived has a configuration of the role, now or from before.
  type: bool
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.admin_socket_host import unread_files
from ansible_collections.baremetal.inference.plugins.module_utils.vllm.ports_host import listeners

HAPROXY = "/usr/sbin/haproxy"
KEEPALIVED = "/usr/sbin/keepalived"
KEEPALIVED_CONFIG = "/etc/keepalived/keepalived.conf"
MARK = "role baremetal.inference.gateway"
UNITS = ("haproxy.service", "gateway-agent.service")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "dict", "required": True},
            "socket": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "path", "required": True},
        },
        supports_check_mode=True,
    )
    problem = clash({int(port): str(name) for port, name in module.params["ports"].items()})
    if problem:
        module.fail_json(msg=problem)
    module.exit_json(
        changed=False,
        haproxy=os.path.exists(HAPROXY),
        keepalived=os.path.exists(KEEPALIVED),
        unread=unread_files(module.params["socket"], module.params["files"]),
        shares_address=is_ours(KEEPALIVED_CONFIG),
    )


def clash(names: dict[int, str]) -> str | None:
    """Return who else has one of the ports, None where each is free or the gateway's own."""
    for found in listeners(set(names)):
        if found.unit in UNITS:
            continue
        who = f"process {found.pid} ({found.command})" if found.pid else "a process that cannot be seen from here"
        unit = f" of unit {found.unit}" if found.unit else ""
        name = names[found.port]
        return f"{name}: port {found.port} is in use by {who}{unit}; stop that, or let {name} name another port"
    return None


def is_ours(path: str) -> bool:
    """Return whether a configuration was written by the role."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return MARK in file.read(4096)
    except OSError:
        return False


if __name__ == "__main__":
    main()
