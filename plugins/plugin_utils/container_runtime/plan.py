# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a host's container engine from the request and the host's state."""

from dataclasses import replace
from typing import Any, Mapping, Sequence

from ...module_utils.container_runtime.daemon_file import merge_settings
from ...module_utils.container_runtime.facts import EngineState, HostState, RuntimePlanError
from ...module_utils.container_runtime.names import (
    DAEMON_JSON,
    DOCKER_UNIT,
    REFRESH_PATH,
    REFRESH_SERVICE,
    REGISTRIES,
    STATIC_CDI,
    STORAGE_CONF,
    STORAGE_SHIPPED,
    UDEV_RULES,
)
from ...module_utils.containers.engine import version_of
from .ascend import RUNTIME
from .config_files import (
    CGROUP_DRIVER,
    LINK_COMMAND,
    UDEV_TEXT,
    cgroup_driver_of,
    check_flags,
    check_registries,
    mirror_urls,
    registries_text,
    storage_text,
)
from .model import EnginePlan, PlanPart, Request
from .packages import format_version, gpu_way, list_names, mending, plan_packages, plan_toolkit

# The first docker whose daemon validates its own file, and the command.
VALIDATES = (23,)
VALIDATE = "dockerd --validate --config-file=%s"
# The first docker with CDI devices enabled by default.
CDI_BY_DEFAULT = (28, 2)
NVIDIA_KIND = "nvidia.com/gpu"


def plan_engine(request: Request, system: Mapping[str, Any], host: HostState) -> EnginePlan:
    """Return the steps for the requested engine. Raises RuntimePlanError if the request cannot be met.

    ``system`` is the role's file for the operating system (roles/container_runtime/vars).
    """
    check_registries("container_runtime_registry_mirrors", request.registry_mirrors)
    check_registries("container_runtime_insecure_registries", request.insecure_registries)
    is_docker = request.engine == "docker"
    version, packages = plan_packages(request, system, host)
    toolkit = plan_toolkit(request, system, host, version)
    configuration = _plan_docker(request, host, version) if is_docker else _plan_podman(request, host)
    steps = packages + toolkit + configuration + _plan_nvidia(request, host, version, bool(toolkit.toolkit))
    _check_restart(request, host, steps.restart)
    # A restart also reads everything that a reload reads.
    steps = replace(steps, reload=() if steps.restart else steps.reload)
    return EnginePlan(
        engine=request.engine,
        unit=DOCKER_UNIT if is_docker else "",
        recover=bool(host.unfinished),
        mend=mending(host.unfinished),
        **vars(steps),
    )


def docker_settings(request: Request, version: Sequence[int], host: HostState) -> dict[str, Any]:
    """Return the keys of daemon.json that this role sets, with their values."""
    settings: dict[str, Any] = {}
    if request.storage:
        settings["data-root"] = request.storage
    if request.registry_mirrors:
        settings["registry-mirrors"] = mirror_urls(request.registry_mirrors, request.insecure_registries)
    if request.insecure_registries:
        settings["insecure-registries"] = list(request.insecure_registries)
    way = gpu_way(request, version, "")
    if way == "cdi" and tuple(version) < CDI_BY_DEFAULT:
        settings["features"] = {"cdi": True}
    if way == "hook":
        settings["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}
        # NVIDIA's hook adds devices without systemd's knowledge; systemd removes them at its next daemon-reload.
        driver = cgroup_driver_of(_daemon_settings(host))
        if driver not in ("", "cgroupfs"):
            raise RuntimePlanError(
                f"{DAEMON_JSON}: exec-opts: found {CGROUP_DRIVER}={driver}, with which docker "
                f"{format_version(version)} loses its GPUs at every systemctl daemon-reload; remove it, or install "
                "docker 25 or later (container_runtime_source: vendor)"
            )
        settings["exec-opts"] = [f"{CGROUP_DRIVER}=cgroupfs"]
    if request.stack == "rocm" and request.toolkit == "vendor":
        settings["runtimes"] = {"amd": {"path": "amd-container-runtime", "runtimeArgs": []}}
    if request.stack == "cann" and request.toolkit == "vendor":
        settings["runtimes"] = dict(RUNTIME)
    return settings


def _plan_docker(request: Request, host: HostState, version: Sequence[int]) -> PlanPart:
    state = host.engines.get("docker") or EngineState("docker")
    settings = docker_settings(request, version, host)
    check_flags(settings, state.flags)
    validate = VALIDATE if version_of(state.version) >= VALIDATES else ""
    entry = {"path": DAEMON_JSON, "settings": settings, "validate": validate}
    configuration = PlanPart(
        settings_files=(entry,) if settings and _changes_daemon(host, settings) else (),
        units=() if DOCKER_UNIT in host.active else (DOCKER_UNIT,),
    )
    return configuration + (_plan_reread(state, settings) if state.version else PlanPart())


def _daemon_settings(host: HostState) -> Mapping[str, Any]:
    """Return the host's keys of daemon.json. Raises RuntimePlanError where docker cannot read the file."""
    if host.daemon_json_error:
        raise RuntimePlanError(host.daemon_json_error)
    return host.daemon_json


def _changes_daemon(host: HostState, settings: Mapping[str, Any]) -> bool:
    """Return whether the settings change daemon.json. Raises RuntimePlanError where they cannot be merged."""
    found = _daemon_settings(host)
    return merge_settings(found, settings) != found


def _file(path: str, content: str) -> dict[str, str]:
    return {"path": path, "content": content, "mode": "0644"}


def _plan_reread(state: EngineState, settings: Mapping[str, Any]) -> PlanPart:
    """Plan how the running docker gets settings that are not active yet, as docker itself reports them."""
    restart, reload, notes = [], [], []
    if "data-root" in settings and state.root.rstrip("/") != settings["data-root"].rstrip("/"):
        restart.append(f"data-root {state.root} -> {settings['data-root']}")
        notes.append(f"images of {state.root} stay there and are pulled again; remove them when all is well")
    if "exec-opts" in settings and state.cgroup_driver != "cgroupfs":
        restart.append(f"{CGROUP_DRIVER} {state.cgroup_driver} -> cgroupfs")
    if "features" in settings and not state.cdi_dirs:
        restart.append("features.cdi")
    runtimes = [name for name in settings.get("runtimes", ()) if name not in state.runtimes]
    if "nvidia" in runtimes:
        # --gpus uses a hook that docker searches for only when it starts.
        restart.append("runtimes.nvidia")
    elif runtimes:
        reload += [f"runtimes.{name}" for name in runtimes]
    mirrors = [address.rstrip("/") for address in state.mirrors]
    if "registry-mirrors" in settings and mirrors != settings["registry-mirrors"]:
        reload.append("registry-mirrors")
    if not set(settings.get("insecure-registries", ())) <= set(state.insecure):
        reload.append("insecure-registries")
    return PlanPart(restart=tuple(restart), reload=tuple(reload), notes=tuple(notes))


def _plan_podman(request: Request, host: HostState) -> PlanPart:
    """Plan podman's files. podman has no daemon: every command reads them, and running containers are unaffected."""
    state, files = host.engines.get("podman") or EngineState("podman"), []
    if request.registry_mirrors or request.insecure_registries:
        text = registries_text(request.registry_mirrors, request.insecure_registries)
        if host.files.get(REGISTRIES, "") != text:
            files.append(_file(REGISTRIES, text))
    if request.storage and state.root.rstrip("/") != request.storage.rstrip("/"):
        if state.containers:
            raise RuntimePlanError(
                f"podman's storage moves from {state.root} to {request.storage}, where it would not find its running "
                f"containers {list_names(state.containers)}; stop them first"
            )
        before = host.files.get(STORAGE_CONF, "")
        text = storage_text(before or host.files.get(STORAGE_SHIPPED, ""), request.storage)
        if text != before:
            files.append(_file(STORAGE_CONF, text))
    return PlanPart(files=tuple(files))


def _plan_nvidia(request: Request, host: HostState, version: Sequence[int], installs_toolkit: bool) -> PlanPart:
    """Plan the files that keep NVIDIA's devices in containers, besides the packages and docker's own file."""
    if gpu_way(request, version, "") != "cdi" or request.toolkit == "none":
        return PlanPart()
    commands: list[tuple[str, ...]] = [LINK_COMMAND] if host.unlinked else []
    has_static = STATIC_CDI in host.files
    missing = NVIDIA_KIND not in host.cdi_kinds or has_static
    if "cuda" in host.drivers and missing and not installs_toolkit:
        commands.append(("systemctl", "restart", REFRESH_SERVICE))
    return PlanPart(
        files=(_file(UDEV_RULES, UDEV_TEXT),) if host.files.get(UDEV_RULES, "") != UDEV_TEXT else (),
        # Two specifications of the same devices are an error, and nothing keeps this one up to date.
        absent=(STATIC_CDI,) if has_static else (),
        units=() if REFRESH_PATH in host.active else (REFRESH_PATH,),
        commands=tuple(commands),
    )


def _check_restart(request: Request, host: HostState, reasons: Sequence[str]) -> None:
    """Raise RuntimePlanError for a restart that would stop containers without permission."""
    state = host.engines.get("docker")
    if request.engine != "docker" or not reasons or state is None or not state.containers or request.restart_allowed:
        return
    raise RuntimePlanError(
        f"docker must be restarted ({'; '.join(reasons)}), which stops "
        f"its containers: {list_names(state.containers)}; stop them first, or set "
        "container_runtime_restart_allowed: true"
    )
