# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a host's container engines, packages and files for the plan of the role container_runtime."""

from __future__ import annotations

import glob
import os
import platform
import re
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from ..common.credentials import redact_credentials
from ..common.files_host import text_of
from ..containers.engine import CDI_DIRS
from ..containers.engine_host import Find, Run, cdi_kinds, read_docker, read_podman
from .ascend import INFO, PROGRAM, installed_version
from .daemon_file import read_settings, redact_settings
from .daemon_host import read_text
from .facts import EngineState, HostState, RuntimePlanError
from .keys import KeyFileError, fingerprints
from .names import (
    DAEMON_JSON,
    DEB_KEYRINGS,
    DOCKER_UNIT,
    MARKER_FILES,
    REPOSITORY_HOSTS,
    RPM_KEYRINGS,
    TEXT_FILES,
    UNITS,
    relevant_packages,
)

SOURCES = {
    "deb": ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"),
    "rpm": ("/etc/yum.repos.d/*.repo",),
}
# Paths that exist if a stack's driver is loaded.
DRIVERS = {"cuda": "/proc/driver/nvidia/version", "rocm": "/dev/kfd", "cann": "/dev/davinci_manager"}
NVIDIA_NODES = (
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)

# Versions of installed packages, dpkg's states of interrupted ones, and names of held ones.
Packages = Tuple[Dict[str, str], Dict[str, str], List[str]]


def read_host(packager: str, run: Run, find: Find) -> HostState:
    """Return the state of the host. Changes nothing."""
    packages, unfinished, held = _PACKAGERS[packager](relevant_packages(packager), run)
    keyrings = sorted(glob.glob(f"{DEB_KEYRINGS}/*.asc") + glob.glob(f"{RPM_KEYRINGS}/RPM-GPG-KEY-*"))
    daemon_json, daemon_json_error = _daemon_json(DAEMON_JSON)
    return HostState(
        architecture=platform.machine(),
        engines={state.name: state for state in (*_docker(run, find), *_podman(run, find))},
        packages=packages,
        unfinished=unfinished,
        held=held,
        files=_files(),
        daemon_json=daemon_json,
        daemon_json_error=daemon_json_error,
        sources=_sources(SOURCES[packager]),
        keys={path: read_fingerprints(path) for path in keyrings},
        active=[unit for unit in UNITS if _runs_now_and_at_boot(unit, run)],
        drivers=[stack for stack, path in DRIVERS.items() if os.path.exists(path)],
        unlinked=_unlinked(),
        cdi_kinds=cdi_kinds(CDI_DIRS),
        apparmor=text_of("/sys/module/apparmor/parameters/enabled").strip() == "Y",
        ascend=installed_version(text_of(INFO)) if os.path.isfile(PROGRAM) else "",
    )


def _files() -> dict[str, str]:
    texts = {path: text_of(path) for path in TEXT_FILES if os.path.isfile(path)}
    return {**texts, **{path: "" for path in MARKER_FILES if os.path.isfile(path)}}


def _daemon_json(path: str) -> tuple[dict[str, Any], str]:
    """Return the keys of daemon.json that the role sets, without credentials, and why docker cannot read the file."""
    try:
        return redact_settings(read_settings(read_text(path), path)), ""
    except RuntimePlanError as exc:
        return {}, str(exc)


def _sources(patterns: Sequence[str]) -> dict[str, str]:
    """Return the package sources that name a vendor's host, by path and without credentials; others stay here."""
    texts = {path: text_of(path) for pattern in patterns for path in sorted(glob.glob(pattern))}
    return {
        path: redact_credentials(text) for path, text in texts.items() if any(host in text for host in REPOSITORY_HOSTS)
    }


def _docker(run: Run, find: Find) -> list[EngineState]:
    answer = read_docker(run, find)
    if answer is None:
        return []
    found, info = answer
    registries = info.get("RegistryConfig") or {}
    index = registries.get("IndexConfigs") or {}
    return [
        EngineState(
            **vars(found),
            daemon=find("dockerd") is not None or bool(found.version),
            containers=_names(run, found.command),
            root=info.get("DockerRootDir") or "",
            mirrors=[redact_credentials(mirror) for mirror in registries.get("Mirrors") or []],
            insecure=sorted(name for name, entry in index.items() if entry.get("Secure") is False),
            cgroup_driver=info.get("CgroupDriver") or "",
            runtimes=sorted(info.get("Runtimes") or {}),
            flags=_flags(run),
        )
    ]


def _podman(run: Run, find: Find) -> list[EngineState]:
    answer = read_podman(run, find)
    if answer is None:
        return []
    found, info = answer
    root = (info.get("store") or {}).get("graphRoot") or ""
    return [EngineState(**vars(found), containers=_names(run, found.command), root=root)]


def _names(run: Run, command: str) -> list[str]:
    rc, out, _err = run([command, "ps", "--format", "{{.Names}}"])
    return sorted(out.split()) if rc == 0 else []


def _flags(run: Run) -> list[str]:
    """Return the names of the options with which systemd starts docker."""
    _rc, out, _err = run(["systemctl", "show", "-P", "ExecStart", DOCKER_UNIT])
    words = re.search(r"argv\[\]=(.*?) ;", out)
    options = [word for word in words.group(1).split() if word.startswith("-")] if words else []
    return [option.partition("=")[0] for option in options]


def _runs_now_and_at_boot(unit: str, run: Run) -> bool:
    return run(["systemctl", "is-active", "--quiet", unit])[0] == 0 == run(["systemctl", "is-enabled", "-q", unit])[0]


def _dpkg(names: Sequence[str], run: Run) -> Packages:
    form = "${Package} ${Version} ${db:Status-Want} ${db:Status-Status}\n"
    _rc, out, _err = run(["dpkg-query", "--show", f"--showformat={form}", *names])
    rows = [line.split() for line in out.splitlines() if len(line.split()) == 4]
    installed = {name: version for name, version, _want, status in rows if status == "installed"}
    # Of every package: any interrupted one stops apt.
    _rc, audit, _err = run(["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"])
    pairs = [line.split() for line in audit.splitlines() if len(line.split()) == 2]
    cut = {name: status for name, status in pairs if status in ("unpacked", "half-installed", "half-configured")}
    return installed, cut, [row[0] for row in rows if row[2] == "hold"]


def _rpm(names: Sequence[str], run: Run) -> Packages:
    form = "%{NAME} %{VERSION}-%{RELEASE}\n"
    _rc, out, _err = run(["rpm", "--query", f"--queryformat={form}", *names])
    pairs = [line.split() for line in out.splitlines() if len(line.split()) == 2]
    return dict(pairs), {}, []


_PACKAGERS: Mapping[str, Callable[[Sequence[str], Run], Packages]] = {"deb": _dpkg, "rpm": _rpm}


def read_fingerprints(path: str) -> list[str]:
    """Return the fingerprints of a keyring file, none for a file that is missing or holds no keys."""
    try:
        with open(path, "rb") as file:
            return fingerprints(file.read())
    except (OSError, KeyFileError):
        return []


def _unlinked() -> list[str]:
    """Return NVIDIA's device nodes that have no link below /dev/char."""
    devices = {path: os.stat(path).st_rdev for pattern in NVIDIA_NODES for path in glob.glob(pattern)}
    links = {path: f"/dev/char/{os.major(device)}:{os.minor(device)}" for path, device in devices.items()}
    return [path for path, link in sorted(links.items()) if not os.path.lexists(link)]
