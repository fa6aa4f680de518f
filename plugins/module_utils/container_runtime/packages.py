# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages bring a container engine and the accelerators into it, and from whose repository. No I/O."""

from __future__ import annotations

from typing import Any, Collection, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.ascend import plan_ascend
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.facts import (
    EngineState,
    HostState,
    Plan,
    RuntimePlanError,
    Wish,
)
from ansible_collections.baremetal.inference.plugins.module_utils.container_runtime.repositories import (
    DOCKER_DISTRO_OTHERS,
    DOCKER_OTHERS,
    DOCKER_VENDOR,
    DOCKER_VERSIONED,
    amd_repository,
    docker_repository,
    elsewhere,
    nvidia_repository,
)
from ansible_collections.baremetal.inference.plugins.module_utils.containers.engine import CDI, version_of

# The first of NVIDIA's toolkit that keeps the specification of CDI up to date by itself.
SELF_REFRESHING = (1, 18)
AMD_CDI = "/etc/cdi/amd.json"
# What a version is that nobody has seen yet: the newest of a vendor.
NEWEST = (999,)
# Packages whose upgrade restarts docker.
HELD = ("docker-ce", "docker-ce-cli", "containerd.io", "docker.io", "docker-cli")

# What ends an installation that was cut off. It removes nothing.
MEND = (
    "apt-get", "--yes", "--fix-broken", "--no-remove", "--reinstall", "--no-install-recommends",
    "--allow-change-held-packages", "--option=DPkg::Lock::Timeout=60", "--option=Dpkg::Options::=--force-confdef",
    "--option=Dpkg::Options::=--force-confold", "install",
)  # fmt: skip

_WHOSE = {"vendor": "Docker's own packages", "distro": "the distribution's packages", "other": "no package"}


def gpu_way(wish: Wish, version: Sequence[int], system_title: str) -> str:
    """Return how NVIDIA's devices reach containers: ``cdi``, docker's older ``hook``, or empty without NVIDIA's chips.

    Raises RuntimePlanError for an engine that can do neither.
    """
    if wish.stack != "cuda":
        return ""
    if tuple(version) >= CDI[wish.engine]:
        return "cdi"
    if wish.engine == "docker":
        return "hook"
    raise RuntimePlanError(
        f"podman {words(version)} of {system_title} gives no NVIDIA devices to containers (4.1 and later do); set "
        "container_runtime_engine: docker"
    )


def mending(unfinished: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the commands that end an installation of these packages, which was cut off; the values are dpkg's words.

    apt brings what they lack only where it is given no names. A package that was cut off while it was unpacked, which
    apt may rather remove or take for installed, comes anew once it is named.
    """
    half = sorted(name for name, status in unfinished.items() if status == "half-installed")
    commands = [{"argv": list(MEND), "may_fail": bool(half)}] if unfinished else []
    return commands + ([{"argv": [*MEND, *half], "may_fail": False}] if half else [])


def plan_engine(wish: Wish, system: Mapping[str, Any], host: HostState, result: Plan) -> tuple[int, ...]:
    """Plan the engine's packages, and return the version that it will have."""
    there = host.engines.get(wish.engine)
    wanted = _wanted_provider(wish, system)
    if there is not None and there.command and there.daemon:
        provider = _provider(wish.engine, host)
        other = _difference(wish, there, provider, wanted)
        if not other or wish.policy == "retain" or wish.source == "none":
            if other:
                result.notes.append(f"{other}; it works and is left alone (container_runtime_policy: retain)")
            if holds(wish, system["packager"]):
                result.hold = _to_hold(host.packages, host)
            return version_of(there.version) or _installed_version(wish.engine, host)
        if wish.policy == "halt":
            raise RuntimePlanError(f"{other}, and container_runtime_policy is halt")
        if provider == "other":
            raise RuntimePlanError(f"{other}; the role cannot replace what is in no package: remove it first")
        if wish.engine == "docker":
            result.restart.append(other)
    elif wish.source == "none":
        raise RuntimePlanError(
            f"{wish.engine} is not on this host, and container_runtime_source is none; install it, or choose "
            "vendor, distro or mirror as the source"
        )
    return _install(wish, system, host, wanted, result)


def _wanted_provider(wish: Wish, system: Mapping[str, Any]) -> str:
    """Return whose packages are wanted: ``vendor`` for Docker's, else ``distro``; podman is always the latter's."""
    if wish.engine == "podman" or wish.source == "none":
        return "distro"
    if wish.source == "mirror" and not wish.mirror_url:
        raise RuntimePlanError(
            "container_runtime_source is mirror and container_runtime_mirror_url is empty; name the address below "
            "which the vendors' hosts are mirrored"
        )
    if wish.source == "distro" and not system["docker"].get("distro"):
        raise RuntimePlanError(
            f"{system['title']} has no docker of its own; set container_runtime_engine: podman, or "
            "container_runtime_source: vendor"
        )
    return "distro" if wish.source == "distro" else "vendor"


def _provider(engine: str, host: HostState) -> str:
    if engine == "podman":
        return "distro" if "podman" in host.packages else "other"
    if "docker-ce" in host.packages:
        return "vendor"
    return "distro" if {"docker.io", "moby-engine", "docker"} & set(host.packages) else "other"


def _installed_version(engine: str, host: HostState) -> tuple[int, ...]:
    """Return the version of an engine that does not say it itself, by its package."""
    names = ("docker-ce", "docker.io") if engine == "docker" else ("podman",)
    found = next((host.packages[name] for name in names if name in host.packages), "")
    return version_of(found.rpartition(":")[2]) or NEWEST


def _difference(wish: Wish, there: EngineState, provider: str, wanted: str) -> str:
    """Return how the engine that is there differs from the one that is wished for, as a sentence; empty where not."""
    if wish.source == "none":
        return ""
    if provider != wanted:
        return f"{there.name} is there from {_WHOSE[provider]}, and {_WHOSE[wanted]} are wanted"
    asked = version_of(wish.version)
    found = version_of(there.version)
    if asked and found and found[: len(asked)] != asked:
        return f"{there.name} is {there.version}, and container_runtime_version is {wish.version}"
    return ""


def _install(wish: Wish, system: Mapping[str, Any], host: HostState, wanted: str, result: Plan) -> tuple[int, ...]:
    """Plan a new engine, or another one in its place."""
    packager = system["packager"]
    if wish.engine == "podman":
        names = list(system["podman"]["packages"])
        result.packages = [_pinned(name, wish, packager, name == "podman") for name in names]
        return version_of(wish.version) or version_of(system["podman"]["version"])
    others: Sequence[str]
    if wanted == "vendor":
        names, others = list(DOCKER_VENDOR), DOCKER_OTHERS[packager]
        _add_repository(docker_repository(system, wish, host), host, result)
        version = version_of(wish.version) or NEWEST
    else:
        names, others = list(system["docker"]["distro"]["packages"]), DOCKER_DISTRO_OTHERS
        version = version_of(wish.version) or version_of(system["docker"]["distro"]["version"])
    versioned = DOCKER_VERSIONED if wanted == "vendor" else tuple(names)
    if host.apparmor and "apparmor" not in host.packages and packager == "deb":
        # Without its parser docker starts no container on a kernel that has AppArmor.
        names.append("apparmor")
    result.remove = [name for name in others if name in host.packages]
    # apt replaces no package that is held.
    result.release = [name for name in result.remove if name in host.held]
    if "runc" in result.remove and "podman" in host.packages and "crun" not in host.packages:
        names.append("crun")
    if result.remove and host.running and not wish.restart_allowed:
        raise RuntimePlanError(
            f"{', '.join(result.remove)} must go before {names[0]} comes, and "
            f"containers run: {some(host.running)}; stop them first, or set container_runtime_restart_allowed: true"
        )
    epoch = "5:" if wanted == "vendor" else ""
    result.packages = [_pinned(name, wish, packager, name in versioned, epoch) for name in names]
    result.hold = _to_hold(names, host) if holds(wish, packager) else []
    return version


def _pinned(name: str, wish: Wish, packager: str, versioned: bool, epoch: str = "") -> str:
    """Return a package as its packager is asked for it, with any build of the wished version."""
    if not wish.version or not versioned:
        return name
    return f"{name}={epoch}{wish.version}*" if packager == "deb" else f"{name}-{wish.version}*"


def _to_hold(names: Collection[str], host: HostState) -> list[str]:
    return [name for name in HELD if name in names and name not in host.held]


def holds(wish: Wish, packager: str) -> bool:
    """Return whether docker's packages are held; where there is no holding, its repository is off."""
    return wish.hold and wish.engine == "docker" and wish.source != "none" and packager == "deb"


def _add_repository(repository: dict[str, Any], host: HostState, result: Plan) -> None:
    other = elsewhere(repository, host)
    if other:
        result.notes.append(f"packages of {repository['host']} come from {other}, which is left as it is")
        return
    result.enable += [repository["enable"]] if repository["enable"] else []
    key = repository["key"]
    trusted = list(host.keys.get(key["path"], ()))
    if host.sources.get(repository["path"]) != repository["content"] or trusted != key["fingerprints"]:
        result.repositories.append(repository)


def plan_toolkit(wish: Wish, system: Mapping[str, Any], host: HostState, version: Sequence[int], result: Plan) -> None:
    """Plan the vendor's packages that bring accelerators into containers."""
    way = gpu_way(wish, version, system["title"])
    if wish.toolkit == "none" or (wish.toolkit == "auto" and wish.stack != "cuda"):
        return
    if wish.stack == "cann":
        plan_ascend(wish, host, version, result)
    elif way:
        _nvidia_packages(way, wish, system, host, result)
    elif wish.stack == "rocm":
        _amd_packages(wish, system, host, version, result)


def _nvidia_packages(way: str, wish: Wish, system: Mapping[str, Any], host: HostState, result: Plan) -> None:
    whole, base = "nvidia-container-toolkit", "nvidia-container-toolkit-base"
    wanted = whole if way == "hook" or whole in host.packages else base
    found = host.packages.get(wanted)
    old = found is not None and way == "cdi" and version_of(found.rpartition(":")[2]) < SELF_REFRESHING
    if found is not None and not old:
        return
    if wish.source == "none":
        state = f"is {found}, and 1.18 or later" if found else "is not there, and it"
        raise RuntimePlanError(
            f"{wanted} {state} is needed for NVIDIA's devices in containers, while container_runtime_source is none; "
            "install it, or set container_runtime_toolkit: none"
        )
    _add_repository(nvidia_repository(system, wish, host), host, result)
    # The two must be of one version.
    result.toolkit = [wanted] if wanted == base else [whole, base]


def _amd_packages(wish: Wish, system: Mapping[str, Any], host: HostState, version: Sequence[int], result: Plan) -> None:
    if wish.engine == "docker" and tuple(version) < (25,):
        raise RuntimePlanError(
            f"AMD's container toolkit needs docker 25 or later, and this is {words(version)}; set "
            "container_runtime_toolkit: auto, with which containers get the plain devices"
        )
    if "amd-container-toolkit" not in host.packages:
        if wish.source == "none":
            raise RuntimePlanError(
                "amd-container-toolkit is not on this host, and container_runtime_source is none; install it, or set "
                "container_runtime_toolkit: auto"
            )
        _add_repository(amd_repository(system, wish, host), host, result)
        result.toolkit = ["amd-container-toolkit"]
    if AMD_CDI not in host.files and "rocm" in host.drivers:
        result.commands.append(["/usr/bin/amd-ctk", "cdi", "generate"])


def words(version: Sequence[int]) -> str:
    return ".".join(str(number) for number in version)


def some(names: Sequence[str]) -> str:
    shown = sorted(names)[:10]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
