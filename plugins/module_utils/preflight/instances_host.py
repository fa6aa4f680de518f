# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a host before vLLM instances are installed on it."""

from __future__ import annotations

import contextlib
import grp
import os
import platform
import pwd
import re
from typing import Any

from ..common.files_host import text_of
from ..common.module import Module
from ..containers.engine import ContainerError, choose_engine, gpus_by, has_quadlet, needed_paths, origin
from ..containers.engine_host import HOOKS, cdi_kinds, read_docker, read_podman
from ..containers.run_command import container_name
from ..encodings.library import Use
from ..encodings.library_host import all_accepted
from ..vllm.compilers import CC, HEADERS, describe_missing, packages_of
from ..vllm.files import QUADLET, TEMPLATE, UNIT, quadlet_path, unit_kind, unit_path
from ..vllm.ports_host import Listener, listeners

# The init program that each engine adds with --init, and its possible paths.
INITS = {
    "docker": ["docker-init", "/usr/libexec/docker", "/usr/local/libexec/docker"],
    "podman": ["catatonit", "/usr/libexec/podman", "/usr/lib/podman", "/usr/libexec/catatonit"],
}
CAP_SYS_RESOURCE = 24


def check_ports(module: Module, engine: str) -> None:
    """Fail for a port on which another process than its instance listens."""
    ports = {int(port): name for name, port in module.params["ports"].items()}
    for found in listeners(set(ports)):
        name = ports[found.port]
        if found.unit == f"vllm@{name}.service" or is_container(module, engine, name, found):
            continue
        module.fail_json(
            msg=f"port {found.port} of vllm_instances.{name} is in use by {found.who}; "
            f"stop that, or give vllm_instances.{name}.port another number"
        )


def is_container(module: Module, engine: str, name: str, found: Listener) -> bool:
    """Return whether the listener runs in the instance's own container; docker's are in no unit of the role."""
    # In a unit it is what the unit's owner calls it: only root makes groups outside of all units.
    groups = text_of(f"/proc/{found.pid}/cgroup") if found.pid and not found.unit else ""
    identity = re.search(r"(?m)[/-]([0-9a-f]{64})(?:\.scope)?(?=/|$)", groups)
    # An instance that changes from docker to another engine still runs in docker.
    commands = dict.fromkeys((engine, module.get_bin_path("docker") or "")) if identity else {}
    for command in filter(None, commands):
        rc, out, _err = module.run_command([command, "inspect", "--format", "{{.Id}}", container_name(name)])
        if rc == 0 and identity and out.strip() == identity.group(1):
            return True
    return False


def missing(module: Module, libraries: list[str]) -> list[str]:
    """Return those libraries that are not in the dynamic linker's cache."""
    ldconfig = module.get_bin_path("ldconfig", required=True, opt_dirs=["/sbin", "/usr/sbin"])
    _rc, out, _err = module.run_command([ldconfig, "-p"], check_rc=True)
    known = {line.split()[0] for line in out.splitlines()[1:] if line.strip()}
    return [name for name in libraries if name not in known]


def compiler_packages(module: Module, compilers: dict[str, list[str]]) -> list[str]:
    """Return the packages that apt must install for the compilers; fail if they cannot be determined."""
    packages: dict[str, None] = {}
    manager = "apt" if module.get_bin_path("apt-get") else "dnf"
    for python, tools in compilers.items():
        lacking = [tool for tool in tools if not has_tool(module, tool, python)]
        if lacking and (manager != "apt" or (HEADERS in lacking and not python.startswith("/usr/bin/python3."))):
            module.fail_json(msg=f"{platform.node()}: {describe_missing(lacking, python, manager)}")
        packages.update(dict.fromkeys(packages_of(lacking, python, manager)))
    return list(packages)


def has_tool(module: Module, tool: str, python: str) -> bool:
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


def installed_unit(name: str) -> str:
    """Return the kind of unit that systemd has for an instance: its own file takes precedence over the shared one."""
    if os.path.exists(unit_path(name)):
        return UNIT
    return QUADLET if os.path.exists(quadlet_path(name)) else TEMPLATE


def planned_kind(module: Module, container: dict[str, Any], name: str) -> str:
    """Return the kind of unit that an instance will have."""
    return unit_kind(
        {"instance": name, "runtime": "container" if name in module.params["containers"] else "venv"}, container
    )


def inspect_engine(module: Module) -> dict[str, Any]:
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


def missing_paths(module: Module) -> dict[str, list[str]]:
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


def has_accepted(module: Module, engine: str) -> bool:
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
