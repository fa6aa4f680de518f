#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gateway_preflight
short_description: (internal) Check a host before it becomes a gateway
description:
  - Checks that the host has the addresses of the gateway, and that its ports are free or in use by the gateway itself.
  - Where a program is missing, it asks the package repositories of the host whether they answer.
  - Reports which programs are installed, and whether HAProxy has read the files on the disk.
  - Changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  ports:
    description: TCP ports of the gateway, each with the option of the role that sets it.
    type: dict
    required: true
  listens:
    description: Addresses to listen on, each with the option of the role that sets it.
    type: dict
    default: {}
  socket:
    description: Admin socket of HAProxy.
    type: path
    required: true
  files:
    description: Files that a worker of HAProxy reads only when it starts.
    type: list
    elements: path
    required: true
  shares_address:
    description: Whether the gateway shares an address with others, for which it needs keepalived.
    type: bool
    default: false
  certificate:
    description: Path of the gateway's certificate.
    type: path
"""

EXAMPLES = "\n# roles/gateway/tasks/preflight.yml\n"

import os
import platform
import re

from ..module_utils.common.door import start_module
from ..module_utils.common.own_addresses_host import listen_problem
from ..module_utils.common.repositories_host import repository_problem
from ..module_utils.gateway.admin_socket_host import unread_files
from ..module_utils.vllm.ports_host import listeners

HAPROXY = "/usr/sbin/haproxy"
KEEPALIVED = "/usr/sbin/keepalived"
KEEPALIVED_CONFIG = "/etc/keepalived/keepalived.conf"
MARK = "role baremetal.inference.gateway"
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
USAGE_UNIT = "/etc/systemd/system/gateway-usage.service"
READERS_UNIT = "/etc/systemd/system/gateway-readers.service"
HAPROXY_CONFIG = "/etc/haproxy/haproxy.cfg"
USED_BUDGETS = "/over.map"
# systemd itself has the ports of the sockets while their services are down.
PASSED = tuple(f"{name}.{kind}" for name in ("gateway-agent", "gateway-usage") for kind in ("service", "socket"))
UNITS = ("haproxy.service", *PASSED)


def main() -> None:
    module = start_module(DOCUMENTATION)
    ports = {int(port): str(name) for port, name in module.params["ports"].items()}
    problem = listen_problem(module.params["listens"]) or find_port_conflict(ports)
    if problem:
        module.fail_json(msg=problem)
    programs = [HAPROXY, *([KEEPALIVED] if module.params["shares_address"] else [])]
    lacking = [os.path.basename(program) for program in programs if not os.path.exists(program)]
    problem = repository_problem(lacking) if lacking else ""
    if problem:
        module.fail_json(msg=f"{platform.node()}: {problem}")
    module.exit_json(
        changed=False,
        haproxy=os.path.exists(HAPROXY),
        keepalived=os.path.exists(KEEPALIVED),
        unread=unread_files(module.params["socket"], module.params["files"]),
        certificate=first_certificate(module.params["certificate"] or ""),
        shares_address=has_text(KEEPALIVED_CONFIG, MARK),
        memory_kib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024,
        counts_tokens=os.path.exists(USAGE_UNIT),
        ends_readers=os.path.exists(READERS_UNIT),
        limits_tokens=os.path.exists(USAGE_UNIT) and has_text(HAPROXY_CONFIG, USED_BUDGETS),
    )


def find_port_conflict(names: dict[int, str]) -> str | None:
    """Return a message about a port that another process uses, None when there is none."""
    for found in listeners(set(names)):
        # Before Linux 5.9 the kernel does not say which unit a socket of systemd itself belongs to.
        if found.unit in UNITS or (found.pid == 1 and found.unit is None):
            continue
        name = names[found.port]
        return f"{name}: port {found.port} is in use by {found.who}; stop it, or set {name} to another port"
    return None


def first_certificate(path: str) -> str:
    """Return the first certificate in a file, without anything around it; nothing if there is none."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = CERTIFICATE.search(file.read())
    except OSError:
        return ""
    return found.group(0) if found else ""


def has_text(path: str, text: str) -> bool:
    """Return whether a configuration is there and has a text."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return text in file.read()
    except OSError:
        return False


if __name__ == "__main__":
    main()
