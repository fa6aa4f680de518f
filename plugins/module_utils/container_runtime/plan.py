# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a host's container engine: what is wanted and what is there in, what the tasks carry out, out. No I/O."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.ascend import RUNTIME
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.config_files import (
    CGROUP_DRIVER,
    DAEMON_JSON,
    LINK_COMMAND,
    REGISTRIES,
    STORAGE_CONF,
    STORAGE_SHIPPED,
    UDEV_RULES,
    UDEV_TEXT,
    cgroup_driver_of,
    check_flags,
    check_registries,
    daemon_text,
    mirror_urls,
    registries_text,
    storage_text,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    EngineState,
    HostState,
    Plan,
    RuntimePlanError,
    Wish,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.packages import (
    AMD_CDI,
    gpu_way,
    mending,
    plan_engine,
    plan_toolkit,
    some,
    words,
)
from ansible_collections.baremetal.inference.plugins.module_utils.containers.engine import version_of

DOCKER_UNIT = "docker.service"
REFRESH_PATH, REFRESH_SERVICE = "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"

# Since when docker's daemon judges its own file, and with which words.
VALIDATES = (23,)
VALIDATE = "dockerd --validate --config-file=%s"
# From here on docker knows CDI devices without being told to.
CDI_BY_DEFAULT = (28, 2)
# Where older releases of NVIDIA's toolkit had people write the specification of CDI.
STATIC_CDI = "/etc/cdi/nvidia.yaml"
NVIDIA_KIND = "nvidia.com/gpu"

# Nodes that the drivers bring and containers are given as they are.
NODES = {"rocm": ("/dev/kfd", "/dev/dri"), "cann": ("/dev/davinci_manager", "/dev/hisi_hdc")}

FILES_OF_INTEREST = (DAEMON_JSON, REGISTRIES, STORAGE_CONF, STORAGE_SHIPPED, UDEV_RULES, STATIC_CDI, AMD_CDI)


def plan(wish: Wish, system: Mapping[str, Any], host: HostState) -> Plan:
    """Return what has to be done for the engine that is wished for; raises RuntimePlanError, with nothing done.

    ``system`` is the role's file of the operating system (roles/container_runtime/vars).
    """
    check_registries("container_runtime_registry_mirrors", wish.registry_mirrors)
    check_registries("container_runtime_insecure_registries", wish.insecure_registries)
    result = Plan(wish.engine, unit=DOCKER_UNIT if wish.engine == "docker" else "")
    result.recover = bool(host.unfinished)
    result.mend = mending(host.unfinished)
    version = plan_engine(wish, system, host, result)
    plan_toolkit(wish, system, host, version, result)
    if wish.engine == "docker":
        _plan_docker(wish, host, version, result)
    else:
        _plan_podman(wish, host, result)
    _plan_nvidia(wish, host, version, result)
    _check_restart(wish, host, result)
    return result


def docker_settings(wish: Wish, version: Sequence[int], before: str) -> dict[str, Any]:
    """Return the keys of daemon.json that this role has a say in, as they should be. ``before`` is the file's text."""
    settings: dict[str, Any] = {}
    if wish.storage:
        settings["data-root"] = wish.storage
    if wish.registry_mirrors:
        settings["registry-mirrors"] = mirror_urls(wish.registry_mirrors, wish.insecure_registries)
    if wish.insecure_registries:
        settings["insecure-registries"] = list(wish.insecure_registries)
    way = gpu_way(wish, version, "")
    if way == "cdi" and tuple(version) < CDI_BY_DEFAULT:
        settings["features"] = {"cdi": True}
    if way == "hook":
        settings["runtimes"] = {"nvidia": {"path": "nvidia-container-runtime", "runtimeArgs": []}}
        # NVIDIA's hook adds devices behind systemd's back, which takes them away with its next daemon-reload.
        driver = cgroup_driver_of(before)
        if driver not in ("", "cgroupfs"):
            raise RuntimePlanError(
                f"{DAEMON_JSON}: exec-opts: found {CGROUP_DRIVER}={driver}, with which docker {words(version)} loses "
                "its GPUs at every systemctl daemon-reload; take it out, or have docker 25 or later "
                "(container_runtime_source: vendor)"
            )
        settings["exec-opts"] = [f"{CGROUP_DRIVER}=cgroupfs"]
    if wish.stack == "rocm" and wish.toolkit == "vendor":
        settings["runtimes"] = {"amd": {"path": "amd-container-runtime", "runtimeArgs": []}}
    if wish.stack == "cann" and wish.toolkit == "vendor":
        settings["runtimes"] = dict(RUNTIME)
    return settings


def _plan_docker(wish: Wish, host: HostState, version: Sequence[int], result: Plan) -> None:
    there = host.engines.get("docker") or EngineState("docker")
    before = host.files.get(DAEMON_JSON, "")
    settings = docker_settings(wish, version, before)
    check_flags(settings, there.flags)
    after = daemon_text(before, settings) if settings else before
    if after != before:
        result.files.append(_file(DAEMON_JSON, after, VALIDATE if version_of(there.version) >= VALIDATES else ""))
    if there.version:
        _plan_reread(there, settings, result)
    if DOCKER_UNIT not in host.active:
        result.units.append(DOCKER_UNIT)


def _file(path: str, content: str, validate: str = "") -> dict[str, str]:
    return {"path": path, "content": content, "mode": "0644", "validate": validate}


def _plan_reread(there: EngineState, settings: Mapping[str, Any], result: Plan) -> None:
    """Plan how docker takes up what it does not have yet. What it has is asked of it: its files say what may come."""
    restart, reload = [], []
    if "data-root" in settings and there.root.rstrip("/") != settings["data-root"].rstrip("/"):
        restart.append(f"data-root {there.root} -> {settings['data-root']}")
        result.notes.append(f"images of {there.root} stay there and are pulled anew; remove them when all is well")
    if "exec-opts" in settings and there.cgroup_driver != "cgroupfs":
        restart.append(f"{CGROUP_DRIVER} {there.cgroup_driver} -> cgroupfs")
    if "features" in settings and not there.cdi_dirs:
        restart.append("features.cdi")
    runtimes = [name for name in settings.get("runtimes", ()) if name not in there.runtimes]
    if "nvidia" in runtimes:
        # --gpus goes by a hook that docker looks for when it starts.
        restart.append("runtimes.nvidia")
    elif runtimes:
        reload += [f"runtimes.{name}" for name in runtimes]
    mirrors = [address.rstrip("/") for address in there.mirrors]
    if "registry-mirrors" in settings and mirrors != settings["registry-mirrors"]:
        reload.append("registry-mirrors")
    if not set(settings.get("insecure-registries", ())) <= set(there.insecure):
        reload.append("insecure-registries")
    result.restart += restart
    # A restart reads everything.
    result.reload += [] if result.restart else reload


def _plan_podman(wish: Wish, host: HostState, result: Plan) -> None:
    """Plan podman's files. It is no daemon: every command reads them, and running containers do not notice."""
    there = host.engines.get("podman") or EngineState("podman")
    if wish.registry_mirrors or wish.insecure_registries:
        text = registries_text(wish.registry_mirrors, wish.insecure_registries)
        if host.files.get(REGISTRIES, "") != text:
            result.files.append(_file(REGISTRIES, text))
    if wish.storage and there.root.rstrip("/") != wish.storage.rstrip("/"):
        if there.containers:
            raise RuntimePlanError(
                f"podman's storage moves from {there.root} to {wish.storage}, where it would not find its running "
                f"containers {some(there.containers)}; stop them first"
            )
        before = host.files.get(STORAGE_CONF, "")
        text = storage_text(before or host.files.get(STORAGE_SHIPPED, ""), wish.storage)
        if text != before:
            result.files.append(_file(STORAGE_CONF, text))


def _plan_nvidia(wish: Wish, host: HostState, version: Sequence[int], result: Plan) -> None:
    """Plan what keeps NVIDIA's devices in containers, beside the packages and docker's own file."""
    if gpu_way(wish, version, "") != "cdi" or wish.toolkit == "none":
        return
    if host.files.get(UDEV_RULES, "") != UDEV_TEXT:
        result.files.append(_file(UDEV_RULES, UDEV_TEXT))
    if host.unlinked:
        result.commands.append(list(LINK_COMMAND))
    if STATIC_CDI in host.files:
        # The same devices in two specifications are an error, and this one nobody keeps up to date.
        result.absent.append(STATIC_CDI)
    if REFRESH_PATH not in host.active:
        result.units.append(REFRESH_PATH)
    missing = NVIDIA_KIND not in host.cdi_kinds or STATIC_CDI in host.files
    if "cuda" in host.drivers and missing and not result.toolkit:
        result.commands.append(["systemctl", "restart", REFRESH_SERVICE])


def _check_restart(wish: Wish, host: HostState, result: Plan) -> None:
    """Raise RuntimePlanError for a restart that would stop containers without leave."""
    there = host.engines.get("docker")
    if wish.engine != "docker" or not result.restart or there is None or not there.containers or wish.restart_allowed:
        return
    raise RuntimePlanError(
        f"docker must be restarted ({'; '.join(result.restart)}), which stops "
        f"its containers: {some(there.containers)}; stop them first, or set container_runtime_restart_allowed: true"
    )
