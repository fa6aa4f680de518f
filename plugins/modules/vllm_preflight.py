#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_preflight
short_description: Look at a host before vLLM instances are installed on it
version_added: 0.1.0
description:
  - Checks that the ports of the instances are free or belong to the very instances, and says which instances have
    files on the host and which shared libraries are missing.
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
      - TCP port of each instance, by instance name.
    type: dict
    required: true
  libraries:
    description:
      - Shared libraries that vLLM will load, by the names that the dynamic linker knows.
    type: list
    elements: str
    default: []
  config_dir:
    description:
      - Directory in which the instances' files lie.
    type: path
    default: /etc/vllm
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Look whether the ports are free
  baremetal.inference.vllm_preflight:
    ports:
      chat: 8000
  register: host_state
"""

RETURN = r"""
installed:
  description: Names of the instances that have files on the host, wished for or not.
  type: list
  elements: str
  returned: success
missing_libraries:
  description: Those of O(libraries) that the dynamic linker does not find.
  type: list
  elements: str
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.baremetal.inference.plugins.module_utils._ports import listeners


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "dict", "required": True},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "config_dir": {"type": "path", "default": "/etc/vllm"},
        },
        supports_check_mode=True,
    )
    ports = {int(port): name for name, port in module.params["ports"].items()}
    for found in listeners(set(ports)):
        name = ports[found.port]
        if found.unit != f"vllm@{name}.service":
            who = f"process {found.pid} ({found.command})" if found.pid else "a process that cannot be seen from here"
            module.fail_json(
                msg=f"port {found.port} of vllm_instances.{name} is in use by {who}"
                f"{f' of unit {found.unit}' if found.unit else ''}; "
                f"stop that, or give vllm_instances.{name}.port another number"
            )
    module.exit_json(
        changed=False,
        installed=installed(module.params["config_dir"]),
        missing_libraries=missing(module, module.params["libraries"]),
    )


def missing(module: AnsibleModule, libraries: list[str]) -> list[str]:
    """Return those libraries that are not in the dynamic linker's cache."""
    ldconfig = module.get_bin_path("ldconfig", required=True, opt_dirs=["/sbin", "/usr/sbin"])
    _rc, out, _err = module.run_command([ldconfig, "-p"], check_rc=True)
    known = {line.split()[0] for line in out.splitlines()[1:] if line.strip()}
    return [name for name in libraries if name not in known]


def installed(config_dir: str) -> list[str]:
    """Return the names of the instances that have a configuration, sorted."""
    if not os.path.isdir(config_dir):
        return []
    return sorted(name[: -len(".yaml")] for name in os.listdir(config_dir) if name.endswith(".yaml"))


if __name__ == "__main__":
    main()
