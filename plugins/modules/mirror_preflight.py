#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mirror_preflight
short_description: (internal) Check a host before it becomes a mirror
description:
  - Checks that the mirror's disk is mounted and that its ports are free or its own, and that the host has the
    address.
  - Returns whether nginx, nftables and the registry are installed.
  - Changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  root:
    description: Directory that the mirror serves; the directory above it must exist.
    type: path
    required: true
  mount_point:
    description: Mount point of the disk that O(root) lies on; it must be mounted. Not checked when empty.
    type: str
    default: ""
  port:
    description: TCP port that the mirror listens on.
    type: int
    required: true
  registry_port:
    description: TCP port on which container images are served, if they are.
    type: int
  listens:
    description: Addresses to listen on, each with the option of the role that sets it.
    type: dict
    default: {}
"""

EXAMPLES = "\n# roles/mirror/tasks/preflight.yml\n"

import os
import platform
from typing import Any

from ..module_utils.common.door import start_module
from ..module_utils.common.files_host import text_of
from ..module_utils.common.own_addresses_host import listen_problem
from ..module_utils.common.repositories_host import repository_problem
from ..module_utils.mirror import bill
from ..module_utils.vllm.ports_host import Listener, listeners

# The port of the default site in Debian's package.
DEFAULT_SITE_PORT = 80
NGINX = "/usr/sbin/nginx"
NFT = "/usr/sbin/nft"
REGISTRY = "/usr/bin/docker-registry"
REGISTRY_UNIT = "docker-registry.service"


def main() -> None:
    module = start_module(DOCUMENTATION)
    root, mount_point, port = (module.params[key] for key in ("root", "mount_point", "port"))
    if mount_point and not os.path.ismount(mount_point):
        module.fail_json(
            msg=f"mirror_mount_point {mount_point} is not mounted; "
            "attach and mount the disk with the mirror's content, or correct mirror_mount_point"
        )
    above = os.path.dirname(os.path.abspath(root))
    if not os.path.isdir(above):
        module.fail_json(
            msg=f"mirror_root {root}: {above} does not exist; "
            "mount the disk that it belongs to, create it, or correct mirror_root"
        )
    problem = listen_problem(module.params["listens"]) or clash(ports_of(module.params))
    if problem:
        module.fail_json(msg=problem)
    programs = [NGINX, *([REGISTRY] if module.params["registry_port"] else ())]
    lacking = [os.path.basename(program) for program in programs if not os.path.exists(program)]
    # A run without check mode asks them when it installs, which is its first change.
    problem = repository_problem(lacking) if lacking and module.check_mode else ""
    if problem:
        module.fail_json(msg=f"{platform.node()}: {problem}")
    others = [found for found in listeners({DEFAULT_SITE_PORT}) if not is_nginx(found)]
    module.exit_json(
        changed=False,
        nginx=os.path.exists(NGINX),
        nftables=os.path.exists(NFT),
        content_written=bill.written_at(text_of(os.path.join(root, bill.NAME))),
        registry=os.path.exists(REGISTRY),
        default_site_clashes=port == DEFAULT_SITE_PORT or bool(others),
    )


def ports_of(params: dict[str, Any]) -> dict[str, int]:
    """Return the role's variables that name a port, with the port."""
    names = {
        "mirror_port": params["port"],
        "mirror_registry_port": params["registry_port"],
    }
    return {name: port for name, port in names.items() if port is not None}


def clash(ports: dict[str, int]) -> str | None:
    """Return the conflict of a mirror's port, None if each port is free or used by the mirror."""
    names: dict[int, str] = {}
    for name, port in ports.items():
        if port in names:
            return f"{name}: {port} is the port of {names[port]} too; give one of them another"
        names[port] = name
    for found in listeners(set(names)):
        name = names[found.port]
        if is_nginx(found) or (name != "mirror_port" and found.unit == REGISTRY_UNIT):
            continue
        return f"{name} {found.port} is in use by {found.who}; stop that, or give {name} another number"
    return None


def is_nginx(found: Listener) -> bool:
    """Return whether a listener is the nginx that the mirror is served by."""
    # Anybody can call a process nginx.
    return found.unit == "nginx.service" or (found.uid == 0 and found.command.startswith("nginx: "))


if __name__ == "__main__":
    main()
