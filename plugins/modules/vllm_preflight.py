#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

DOCUMENTATION = r"""
module: vllm_preflight
short_description: (internal) Check a host before vLLM instances are installed on it
description:
  - Checks that the host has the addresses of the instances, and that their ports are free or belong to them, and
    reports which instances have files on the host and which shared libraries are missing.
  - For instances in containers, it chooses the host's engine, docker or podman, and reports what it supports. It fails
    with everything that is missing at once, such as the engine, a device node, a driver's file or a group.
  - Checks that kernels which vLLM compiles at its first start can be compiled. Where apt has the packages, it reports
    them; elsewhere it fails with their names.
  - Where a library or a compiler is missing, it asks the package repositories of the host whether they answer.
  - Changes nothing.
extends_documentation_fragment: baremetal.inference.attributes.no_diff
options:
  ports:
    description: TCP port of each instance, by instance name.
    type: dict
    required: true
  listens:
    description: Addresses to listen on, each with the option that sets it.
    type: dict
    default: {}
  libraries:
    description: Shared libraries that vLLM loads, by the names that the dynamic linker uses.
    type: list
    elements: str
    default: []
  compilers:
    description: What must be there to compile kernels, C(cc), C(c++) and C(Python.h), by the path of the Python whose
      headers count.
    type: dict
    default: {}
  config_dir:
    description: Directory of the instances' files.
    type: path
    default: /etc/vllm
  cache_dir:
    description:
      - Directory of what vLLM compiles when it starts. The module warns when its file system is full or nearly so.
    type: path
    default: /var/cache/vllm
  containers:
    description: What M(baremetal.inference.serve_plan) returned as C(container) for each instance that runs in one, by
      instance name. Without any, no engine is checked.
    type: dict
    default: {}
  engine:
    description: The engine that runs them. When empty, docker, or podman where only that is installed.
    type: str
    choices: ["", docker, podman]
    default: ""
  user:
    description: System user that vLLM runs as.
    type: str
    default: vllm
  home:
    description: Home directory that O(user) is to have.
    type: path
    default: /var/lib/vllm
  shell:
    description: Shell that O(user) is to have.
    type: path
    default: /usr/sbin/nologin
  encodings:
    description: Who reads which encodings, as M(baremetal.inference.encodings_check) takes it in
      O(baremetal.inference.encodings_check#module:uses).
    type: list
    elements: dict
    default: []
  own_paths:
    description: Directories that the same run fills, so that missing files below them are not an error.
    type: list
    elements: path
    default: []
"""

EXAMPLES = "\n# roles/vllm/tasks/host.yml\n"

import os
import platform

from ..module_utils.common.door import start_module
from ..module_utils.common.own_addresses_host import listen_problem
from ..module_utils.common.repositories_host import repository_problem
from ..module_utils.containers.engine import ContainerError
from ..module_utils.instance.config_host import names_in
from ..module_utils.preflight.instances_host import (
    check_ports,
    compiler_packages,
    has_accepted,
    has_user,
    inspect_engine,
    installed_unit,
    missing,
    planned_kind,
)
from ..module_utils.slots.restore_host import stale_ones
from ..module_utils.vllm.files import drop_ins
from ..module_utils.vllm.space_host import describe_full


def main() -> None:
    module = start_module(DOCUMENTATION)
    try:
        container = inspect_engine(module) if module.params["containers"] else {}
    except ContainerError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}")
    problem = listen_problem(module.params["listens"])
    if problem:
        module.fail_json(msg=problem)
    check_ports(module, container.get("command", ""))
    libraries = missing(module, module.params["libraries"])
    packages = compiler_packages(module, module.params["compilers"])
    needed = [*libraries, *packages]
    problem = repository_problem(needed) if needed else ""
    if problem:
        module.fail_json(msg=f"{platform.node()}: {problem}")
    full = describe_full(module.params["cache_dir"])
    if full:
        module.warn(f"{platform.node()}: {full}")
    units = {name: installed_unit(name) for name in names_in(module.params["config_dir"])}
    module.exit_json(
        changed=False,
        installed=sorted(units),
        missing_libraries=libraries,
        missing_packages=packages,
        has_user=has_user(module.params["user"], module.params["home"], module.params["shell"]),
        encodings_accepted=has_accepted(module, container.get("command", "")),
        units=units,
        grouped=[name for name in sorted(units) if os.path.exists(f"{module.params['config_dir']}/{name}.group.json")],
        has_scale=os.path.exists(f"{module.params['config_dir']}/scale.json"),
        drop_ins={name: [path for path in drop_ins(name) if os.path.exists(path)] for name in sorted(units)},
        stale=stale_ones(module.run_command, [name for name in module.params["ports"] if name in units]),
        switched=[
            name
            for name in module.params["ports"]
            if units.get(name, "") not in ("", planned_kind(module, container, name))
        ],
        container=container,
    )


if __name__ == "__main__":
    main()
