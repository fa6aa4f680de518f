#!/usr/bin/python
# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_preflight
short_description: (internal) Check a host before vLLM instances are installed on it
version_added: 0.1.0
description:
  - Internal to the role P(baremetal.inference.vllm#role).
  - Checks that the ports of the instances are free or belong to these instances, and reports which instances have files
    on the host and which shared libraries are missing.
  - For instances in containers, it chooses the host's engine, docker or podman, and reports what it supports. It fails
    with everything that is missing at once, such as the engine, a device node, a driver's file or a group.
  - Checks that kernels which vLLM compiles at its first start can be compiled. Where apt has the packages, it reports
    them; elsewhere it fails with their names.
  - Where a library or a compiler is missing, it asks the package repositories of the host whether they answer.
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
      - Shared libraries that vLLM loads, by the names that the dynamic linker uses.
    type: list
    elements: str
    default: []
  compilers:
    description:
      - What must be there to compile kernels, C(cc), C(c++) and C(Python.h), by the path of the Python whose headers
        count.
    type: dict
    default: {}
    version_added: 0.7.0
  config_dir:
    description:
      - Directory of the instances' files.
    type: path
    default: /etc/vllm
  cache_dir:
    description:
      - Directory of what vLLM compiles when it starts. The module warns when its file system is full or nearly so.
    type: path
    default: /var/cache/vllm
    version_added: 0.7.0
  containers:
    description:
      - What M(baremetal.inference.serve_plan) returned as C(container) for each instance that runs in one, by instance
        name. Without any, no engine is checked.
    type: dict
    default: {}
  engine:
    description:
      - The engine that runs them. When empty, docker, or podman where only that is installed.
    type: str
    choices: ["", docker, podman]
    default: ""
  user:
    description:
      - System user that vLLM runs as.
    type: str
    default: vllm
  home:
    description:
      - Home directory that O(user) is to have.
    type: path
    default: /var/lib/vllm
    version_added: 0.7.0
  shell:
    description:
      - Shell that O(user) is to have.
    type: path
    default: /usr/sbin/nologin
    version_added: 0.7.0
  encodings:
    description:
      - Who reads which encodings, as M(baremetal.inference.encodings_check) takes it in
        O(baremetal.inference.encodings_check#module:uses).
    type: list
    elements: dict
    default: []
    version_added: 0.7.0
  own_paths:
    description:
      - Directories that the same run fills, so that missing files below them are not an error.
    type: list
    elements: path
    default: []
author:
  - the baremetal.inference authors (@baremetal-inference)
"""

EXAMPLES = r"""
- name: Check that the ports are free
  baremetal.inference.vllm_preflight:
    ports:
      chat: 8000
  register: host_state
"""

RETURN = r"""
installed:
  description: Names of the instances that have files on the host, requested or not.
  type: list
  elements: str
  returned: success
missing_libraries:
  description: Those of O(libraries) that the dynamic linker cannot find.
  type: list
  elements: str
  returned: success
missing_packages:
  description: Packages with what is missing of O(compilers).
  type: list
  elements: str
  returned: success
  version_added: 0.7.0
has_user:
  description: Whether O(user) exists with O(home) and O(shell).
  type: bool
  returned: success
  version_added: 0.7.0
encodings_accepted:
  description:
    - Whether M(baremetal.inference.encodings_check) has asked every library of O(encodings) before, and nothing has
      changed since that its answer depends on.
  type: bool
  returned: success
  version_added: 0.7.0
units:
  description:
    - The kind of unit of each instance that has files on the host, the shared one (C(template)) or its own (C(unit),
      C(quadlet)).
  type: dict
  returned: success
stale:
  description:
    - Instances of O(ports) that run with older files or an older image than those installed.
  type: list
  elements: str
  returned: success
grouped:
  description: Installed instances that span several hosts.
  type: list
  elements: str
  returned: success
sharing:
  description: Installed instances that share their chips with others.
  type: list
  elements: str
  returned: success
  version_added: 0.7.0
switched:
  description: Instances of O(ports) that are installed with another kind of unit than planned.
  type: list
  elements: str
  returned: success
container:
  description: The engine and what it supports; empty without O(containers).
  type: dict
  returned: success
  contains:
    engine:
      description: C(docker) or C(podman).
      type: str
    command:
      description: Path of its command.
      type: str
    version:
      description: Its version.
      type: str
    quadlet:
      description: Whether podman generates units from quadlets here.
      type: bool
    gpus:
      description: How devices are requested, by CDI names (C(cdi)) or by docker's C(flag) --gpus.
      type: str
    uid:
      description: Number of O(user), null before it exists.
      type: int
    gid:
      description: Number of its group, null before it exists.
      type: int
    gids:
      description: Numbers of the groups that the containers need, by name.
      type: dict
    init:
      description: Whether the engine has its init, which forwards signals.
      type: bool
    limits:
      description: Whether limits can be raised; a host that is itself a container may not.
      type: bool
"""

import contextlib
import grp
import os
import platform
import pwd
import re
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.common.files_host import text_of
from ..module_utils.common.repositories_host import repository_problem
from ..module_utils.containers.engine import (
    ENGINES,
    ContainerError,
    choose_engine,
    gpus_by,
    has_quadlet,
    needed_paths,
    origin,
)
from ..module_utils.containers.engine_host import HOOKS, cdi_kinds, read_docker, read_podman
from ..module_utils.containers.run_command import container_name
from ..module_utils.encodings.library import Use
from ..module_utils.encodings.library_host import all_accepted
from ..module_utils.slots.restore_host import stale_ones
from ..module_utils.vllm.compilers import CC, HEADERS, describe_missing, packages_of
from ..module_utils.vllm.files import QUADLET, TEMPLATE, UNIT, quadlet_path, residents_path, unit_kind, unit_path
from ..module_utils.vllm.ports_host import Listener, listeners
from ..module_utils.vllm.space_host import describe_full

# The init program that each engine adds with --init, and its possible paths.
INITS = {
    "docker": ["docker-init", "/usr/libexec/docker", "/usr/local/libexec/docker"],
    "podman": ["catatonit", "/usr/libexec/podman", "/usr/lib/podman", "/usr/libexec/catatonit"],
}
CAP_SYS_RESOURCE = 24


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "dict", "required": True},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "compilers": {"type": "dict", "default": {}},
            "config_dir": {"type": "path", "default": "/etc/vllm"},
            "cache_dir": {"type": "path", "default": "/var/cache/vllm"},
            "containers": {"type": "dict", "default": {}},
            "engine": {"type": "str", "choices": ["", *ENGINES], "default": ""},
            "user": {"type": "str", "default": "vllm"},
            "home": {"type": "path", "default": "/var/lib/vllm"},
            "shell": {"type": "path", "default": "/usr/sbin/nologin"},
            "encodings": {"type": "list", "elements": "dict", "default": []},
            "own_paths": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    module.run_command_environ_update = {"LC_ALL": "C"}
    try:
        container = inspect_engine(module) if module.params["containers"] else {}
    except ContainerError as exc:
        module.fail_json(msg=f"{platform.node()}: {exc}")
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
    units = {name: installed_unit(name) for name in installed(module.params["config_dir"])}
    module.exit_json(
        changed=False,
        installed=sorted(units),
        missing_libraries=libraries,
        missing_packages=packages,
        has_user=has_user(module.params["user"], module.params["home"], module.params["shell"]),
        encodings_accepted=has_accepted(module, container.get("command", "")),
        units=units,
        grouped=[name for name in sorted(units) if os.path.exists(f"{module.params['config_dir']}/{name}.group.json")],
        sharing=[name for name in sorted(units) if os.path.exists(residents_path(name))],
        stale=stale_ones(module.run_command, [name for name in module.params["ports"] if name in units]),
        switched=[
            name
            for name in module.params["ports"]
            if units.get(name, "") not in ("", planned_kind(module, container, name))
        ],
        container=container,
    )


def check_ports(module: AnsibleModule, engine: str) -> None:
    """Fail for a port on which another process than its instance listens."""
    ports = {int(port): name for name, port in module.params["ports"].items()}
    for found in listeners(set(ports)):
        name = ports[found.port]
        if found.unit == f"vllm@{name}.service" or is_container(module, engine, name, found):
            continue
        who = f"process {found.pid} ({found.command})" if found.pid else "a process that cannot be seen from here"
        module.fail_json(
            msg=f"port {found.port} of vllm_instances.{name} is in use by {who}"
            f"{f' of unit {found.unit}' if found.unit else ''}; "
            f"stop that, or give vllm_instances.{name}.port another number"
        )


def is_container(module: AnsibleModule, engine: str, name: str, found: Listener) -> bool:
    """Return whether the listener runs in the instance's own container; docker's are in no unit of the role."""
    identity = re.search(r"[0-9a-f]{64}", text_of(f"/proc/{found.pid}/cgroup")) if found.pid else None
    # An instance that changes from docker to another engine still runs in docker.
    commands = dict.fromkeys((engine, module.get_bin_path("docker") or "")) if identity else {}
    for command in filter(None, commands):
        rc, out, _err = module.run_command([command, "inspect", "--format", "{{.Id}}", container_name(name)])
        if rc == 0 and identity and out.strip() == identity.group():
            return True
    return False


def missing(module: AnsibleModule, libraries: list[str]) -> list[str]:
    """Return those libraries that are not in the dynamic linker's cache."""
    ldconfig = module.get_bin_path("ldconfig", required=True, opt_dirs=["/sbin", "/usr/sbin"])
    _rc, out, _err = module.run_command([ldconfig, "-p"], check_rc=True)
    known = {line.split()[0] for line in out.splitlines()[1:] if line.strip()}
    return [name for name in libraries if name not in known]


def compiler_packages(module: AnsibleModule, compilers: dict[str, list[str]]) -> list[str]:
    """Return the packages that apt must install for the compilers; fail if they cannot be determined."""
    packages: dict[str, None] = {}
    manager = "apt" if module.get_bin_path("apt-get") else "dnf"
    for python, tools in compilers.items():
        lacking = [tool for tool in tools if not has_tool(module, tool, python)]
        if lacking and (manager != "apt" or (HEADERS in lacking and not python.startswith("/usr/bin/python3."))):
            module.fail_json(msg=f"{platform.node()}: {describe_missing(lacking, python, manager)}")
        packages.update(dict.fromkeys(packages_of(lacking, python, manager)))
    return list(packages)


def has_tool(module: AnsibleModule, tool: str, python: str) -> bool:
    """Return whether a compiler or a Python's headers are on this host."""
    if tool != HEADERS:
        # Triton accepts either of these as C compiler.
        names = ("gcc", "clang") if tool == CC else (tool,)
        return any(module.get_bin_path(name) for name in names)
    code = "import sysconfig; print(sysconfig.get_path('include'))"
    if not os.access(python, os.X_OK):
        return False
    _rc, out, _err = module.run_command([python, "-I", "-S", "-c", code])
    return os.path.exists(os.path.join(out.strip() or "/nonexistent", HEADERS))


def installed(config_dir: str) -> list[str]:
    """Return the names of the instances that have a configuration, sorted."""
    if not os.path.isdir(config_dir):
        return []
    return sorted(name[: -len(".yaml")] for name in os.listdir(config_dir) if name.endswith(".yaml"))


def installed_unit(name: str) -> str:
    """Return the kind of unit that systemd has for an instance: its own file takes precedence over the shared one."""
    if os.path.exists(unit_path(name)):
        return UNIT
    return QUADLET if os.path.exists(quadlet_path(name)) else TEMPLATE


def planned_kind(module: AnsibleModule, container: dict[str, Any], name: str) -> str:
    """Return the kind of unit that an instance will have."""
    return unit_kind(
        {"instance": name, "runtime": "container" if name in module.params["containers"] else "venv"}, container
    )


def inspect_engine(module: AnsibleModule) -> dict[str, Any]:
    """Return what the engine is and can do; raises ContainerError for what is missing."""
    containers = list(module.params["containers"].values())
    there = [
        answer[0] for read in (read_docker, read_podman) if (answer := read(module.run_command, module.get_bin_path))
    ]
    found = choose_engine(module.params["engine"], there)
    problems = [
        f"{path} is missing, but needed by {', '.join(users)}: it comes with {origin(path)}"
        for path, users in missing_paths(module).items()
    ]
    groups = sorted({name for entry in containers for name in entry["groups"]})
    gids = {name: number for name, number in zip(groups, map(group_number, groups)) if number is not None}
    problems += [
        f"the group {name}, which may open the device nodes, is missing: it comes with the accelerator's driver"
        for name in groups
        if name not in gids
    ]
    devices = [device for entry in containers for device in entry["devices"]]
    gpus = ""
    try:
        gpus = gpus_by(found, devices, cdi_kinds(found.cdi_dirs), any(map(module.get_bin_path, HOOKS)))
    except ContainerError as exc:
        problems.append(str(exc))
    if problems:
        raise ContainerError("; ".join(problems))
    uid, gid = numbers_of(module.params["user"])
    return {
        "engine": found.name,
        "command": found.command,
        "version": found.version,
        "quadlet": has_quadlet(found),
        "gpus": gpus,
        "uid": uid,
        "gid": gid,
        "gids": gids,
        "init": module.get_bin_path(INITS[found.name][0], opt_dirs=INITS[found.name][1:]) is not None,
        "limits": may_raise_limits(),
    }


def missing_paths(module: AnsibleModule) -> dict[str, list[str]]:
    """Return device nodes and mounted files that are not on the host, with the instances that need them."""
    found: dict[str, list[str]] = {}
    for name, container in sorted(module.params["containers"].items()):
        for path in needed_paths([container], module.params["own_paths"]):
            if not os.path.exists(path):
                found.setdefault(path, []).append(name)
    return found


def group_number(name: str) -> int | None:
    """Return the number of a group on this host, None where there is no such group."""
    with contextlib.suppress(KeyError):
        return grp.getgrnam(name).gr_gid
    return None


def has_user(user: str, home: str, shell: str) -> bool:
    """Return whether a user exists with this home directory and shell."""
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(user)
        return (entry.pw_dir, entry.pw_shell) == (home, shell)
    return False


def has_accepted(module: AnsibleModule, engine: str) -> bool:
    """Return whether the libraries need not be asked again; an engine that is missing yet has no answer."""
    uses = [Use.from_dict(entry) for entry in module.params["encodings"]]
    return all_accepted(uses, engine, module.params["user"])


def numbers_of(user: str) -> tuple[int | None, int | None]:
    """Return uid and gid of a user, None if it does not exist yet."""
    with contextlib.suppress(KeyError):
        entry = pwd.getpwnam(user)
        return entry.pw_uid, entry.pw_gid
    return None, None


def may_raise_limits() -> bool:
    """Return whether root may raise resource limits on this host."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", text_of("/proc/self/status"), re.MULTILINE)
    return effective is None or bool(int(effective.group(1), 16) >> CAP_SYS_RESOURCE & 1)


if __name__ == "__main__":
    main()
