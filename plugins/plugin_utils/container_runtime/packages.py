# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which packages provide a container engine and its accelerator toolkit, and from which repository."""

from typing import Any, Collection, Mapping, Sequence

from ...module_utils.container_runtime.facts import EngineState, HostState, RuntimePlanError
from ...module_utils.container_runtime.names import AMD_CDI, DOCKER_OTHERS, DOCKER_VENDOR
from ...module_utils.containers.engine import CDI, version_of
from .ascend import plan_ascend
from .model import PlanPart, Request
from .repositories import (
    DOCKER_DISTRO_OTHERS,
    DOCKER_VERSIONED,
    amd_repository,
    docker_repository,
    elsewhere,
    nvidia_repository,
)

# The first release of NVIDIA's toolkit that keeps the CDI specification up to date.
SELF_REFRESHING = (1, 18)
# A placeholder for an unknown version: the newest of a vendor.
NEWEST = (999,)
# Packages whose upgrade restarts docker.
HELD = ("docker-ce", "docker-ce-cli", "containerd.io", "docker.io", "docker-cli")

# Completes an interrupted installation. It removes nothing.
MEND = (
    "apt-get", "--yes", "--fix-broken", "--no-remove", "--reinstall", "--no-install-recommends",
    "--allow-change-held-packages", "--option=DPkg::Lock::Timeout=60", "--option=Dpkg::Options::=--force-confdef",
    "--option=Dpkg::Options::=--force-confold", "install",
)  # fmt: skip

_WHOSE = {"vendor": "Docker's own packages", "distro": "the distribution's packages", "other": "no package"}


def gpu_way(request: Request, version: Sequence[int], system_title: str) -> str:
    """Return how NVIDIA's devices reach containers: ``cdi``, docker's older ``hook``, or empty without NVIDIA's chips.

    Raises RuntimePlanError for an engine that can do neither.
    """
    if request.stack != "cuda":
        return ""
    if tuple(version) >= CDI[request.engine]:
        return "cdi"
    if request.engine == "docker":
        return "hook"
    raise RuntimePlanError(
        f"podman {format_version(version)} of {system_title} gives no NVIDIA devices to containers (4.1 and later do); "
        "set container_runtime_engine: docker"
    )


def mending(unfinished: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """Return the commands that complete an interrupted installation; the values are dpkg's states of the packages.

    apt installs missing dependencies only if no package is named. It may remove a package whose unpacking was
    interrupted, or treat it as installed, so such packages are reinstalled by name.
    """
    half = sorted(name for name, status in unfinished.items() if status == "half-installed")
    general = ({"argv": list(MEND), "may_fail": bool(half)},) if unfinished else ()
    return general + (({"argv": [*MEND, *half], "may_fail": False},) if half else ())


def plan_packages(request: Request, system: Mapping[str, Any], host: HostState) -> tuple[tuple[int, ...], PlanPart]:
    """Return the version that the engine will have, and the plan of its packages."""
    state = host.engines.get(request.engine)
    wanted = _wanted_provider(request, system)
    if state is None or not state.command or not state.daemon:
        if request.source == "none":
            raise RuntimePlanError(
                f"{request.engine} is not on this host, and container_runtime_source is none; install it, or choose "
                "vendor, distro or mirror as the source"
            )
        return _plan_installation(request, system, host, wanted)
    provider = _provider(request.engine, host)
    difference = _difference(request, state, provider, wanted)
    if not difference or request.policy == "retain" or request.source == "none":
        notes = (
            (f"{difference}; it works and stays unchanged (container_runtime_policy: retain)",) if difference else ()
        )
        hold = _to_hold(host.packages, host) if holds(request, system["packager"]) else ()
        return version_of(state.version) or _installed_version(request.engine, host), PlanPart(hold=hold, notes=notes)
    if request.policy == "halt":
        raise RuntimePlanError(f"{difference}, and container_runtime_policy is halt")
    if provider == "other":
        raise RuntimePlanError(
            f"{difference}; the role cannot replace an engine that belongs to no package: remove it first"
        )
    version, packages = _plan_installation(request, system, host, wanted)
    return version, packages + PlanPart(restart=(difference,) if request.engine == "docker" else ())


def _wanted_provider(request: Request, system: Mapping[str, Any]) -> str:
    """Return whose packages are requested: ``vendor`` for Docker's, else ``distro``; podman is always ``distro``."""
    if request.engine == "podman" or request.source == "none":
        return "distro"
    if request.source == "mirror" and not request.mirror_url:
        raise RuntimePlanError(
            "container_runtime_source is mirror and container_runtime_mirror_url is empty; name the address below "
            "which it mirrors the vendors' hosts"
        )
    if request.source == "distro" and not system["docker"].get("distro"):
        raise RuntimePlanError(
            f"{system['title']} has no docker of its own; set container_runtime_engine: podman, or "
            "container_runtime_source: vendor"
        )
    return "distro" if request.source == "distro" else "vendor"


def _provider(engine: str, host: HostState) -> str:
    if engine == "podman":
        return "distro" if "podman" in host.packages else "other"
    if "docker-ce" in host.packages:
        return "vendor"
    return "distro" if {"docker.io", "moby-engine", "docker"} & set(host.packages) else "other"


def _installed_version(engine: str, host: HostState) -> tuple[int, ...]:
    """Return the version of an engine that does not answer, by its package."""
    names = ("docker-ce", "docker.io") if engine == "docker" else ("podman",)
    found = next((host.packages[name] for name in names if name in host.packages), "")
    return version_of(found.rpartition(":")[2]) or NEWEST


def _difference(request: Request, state: EngineState, provider: str, wanted: str) -> str:
    """Return the difference between the installed and the requested engine, as a sentence; empty if there is none."""
    if request.source == "none":
        return ""
    if provider != wanted:
        return f"{state.name} is installed from {_WHOSE[provider]}, and {_WHOSE[wanted]} are requested"
    asked = version_of(request.version)
    found = version_of(state.version)
    if asked and found and found[: len(asked)] != asked:
        return f"{state.name} is {state.version}, and container_runtime_version is {request.version}"
    return ""


def _plan_installation(
    request: Request, system: Mapping[str, Any], host: HostState, wanted: str
) -> tuple[tuple[int, ...], PlanPart]:
    """Return version and packages of a new engine, or of the one that replaces another."""
    if request.engine == "podman":
        names = system["podman"]["packages"]
        packages = PlanPart(
            packages=tuple(_pinned(name, request, system["packager"], name == "podman") for name in names)
        )
        return version_of(request.version) or version_of(system["podman"]["version"]), packages
    if wanted == "vendor":
        repository = use_repository(docker_repository(system, request, host), host)
        others = DOCKER_OTHERS[system["packager"]]
        packages = _docker_packages(request, system, host, DOCKER_VENDOR, DOCKER_VERSIONED, others, "5:")
        return version_of(request.version) or NEWEST, repository + packages
    distro = system["docker"]["distro"]
    packages = _docker_packages(request, system, host, distro["packages"], distro["packages"], DOCKER_DISTRO_OTHERS)
    return version_of(request.version) or version_of(distro["version"]), packages


def _docker_packages(
    request: Request,
    system: Mapping[str, Any],
    host: HostState,
    own: Sequence[str],
    versioned: Collection[str],
    others: Sequence[str],
    epoch: str = "",
) -> PlanPart:
    """Plan docker's ``own`` packages in place of the ``others``; ``versioned`` have the engine's own version."""
    packager, names = system["packager"], list(own)
    if host.apparmor and "apparmor" not in host.packages and packager == "deb":
        # Without its parser docker starts no container on a kernel that has AppArmor.
        names.append("apparmor")
    remove = tuple(name for name in others if name in host.packages)
    if "runc" in remove and "podman" in host.packages and "crun" not in host.packages:
        names.append("crun")
    if remove and host.running and not request.restart_allowed:
        raise RuntimePlanError(
            f"{', '.join(remove)} must be removed before {names[0]} is installed, and "
            f"containers run: {list_names(host.running)}; stop them first, or set "
            "container_runtime_restart_allowed: true"
        )
    return PlanPart(
        remove=remove,
        # apt replaces no package that is held.
        release=tuple(name for name in remove if name in host.held),
        packages=tuple(_pinned(name, request, packager, name in versioned, epoch) for name in names),
        hold=_to_hold(names, host) if holds(request, packager) else (),
    )


def _pinned(name: str, request: Request, packager: str, versioned: bool, epoch: str = "") -> str:
    """Return a package as its packager expects it, with any build of the requested version."""
    if not request.version or not versioned:
        return name
    return f"{name}={epoch}{request.version}*" if packager == "deb" else f"{name}-{request.version}*"


def _to_hold(names: Collection[str], host: HostState) -> tuple[str, ...]:
    return tuple(name for name in HELD if name in names and name not in host.held)


def holds(request: Request, packager: str) -> bool:
    """Return whether docker's packages are held; without apt its repository is disabled instead."""
    return request.hold and request.engine == "docker" and request.source != "none" and packager == "deb"


def use_repository(repository: Mapping[str, Any], host: HostState) -> PlanPart:
    """Plan a repository's entry and key, unless the host already has both."""
    other = elsewhere(repository, host)
    if other:
        return PlanPart(notes=(f"packages of {repository['host']} come from {other}, which stays unchanged",))
    key = repository["key"]
    # An entry with a password cannot be compared, because the host's comes without it. The role writes it again, which
    # changes nothing where it is the same.
    has_both = (
        host.sources.get(repository["path"]) == repository["content"]
        and list(host.keys.get(key["path"], ())) == key["fingerprints"]
    )
    return PlanPart(
        repositories=() if has_both else (repository,),
        enable=(repository["enable"],) if repository["enable"] else (),
    )


def plan_toolkit(request: Request, system: Mapping[str, Any], host: HostState, version: Sequence[int]) -> PlanPart:
    """Plan the vendor's packages that make accelerators reachable from containers."""
    way = gpu_way(request, version, system["title"])
    if request.toolkit == "none" or (request.toolkit == "auto" and request.stack != "cuda"):
        return PlanPart()
    if request.stack == "cann":
        return plan_ascend(request, host, version)
    if way:
        return _nvidia_packages(way, request, system, host)
    return _amd_packages(request, system, host, version) if request.stack == "rocm" else PlanPart()


def _nvidia_packages(way: str, request: Request, system: Mapping[str, Any], host: HostState) -> PlanPart:
    full, base = "nvidia-container-toolkit", "nvidia-container-toolkit-base"
    wanted = full if way == "hook" or full in host.packages else base
    found = host.packages.get(wanted)
    is_old = found is not None and way == "cdi" and version_of(found.rpartition(":")[2]) < SELF_REFRESHING
    if found is not None and not is_old:
        return PlanPart()
    if request.source == "none":
        state = f"is {found}, and 1.18 or later" if found else "is not there, and it"
        raise RuntimePlanError(
            f"{wanted} {state} is needed for NVIDIA's devices in containers, while container_runtime_source is none; "
            "install it, or set container_runtime_toolkit: none"
        )
    # The two must be of one version.
    packages = PlanPart(toolkit=(wanted,) if wanted == base else (full, base))
    return use_repository(nvidia_repository(system, request, host), host) + packages


def _amd_packages(request: Request, system: Mapping[str, Any], host: HostState, version: Sequence[int]) -> PlanPart:
    if request.engine == "docker" and tuple(version) < (25,):
        raise RuntimePlanError(
            f"AMD's container toolkit needs docker 25 or later, and this is {format_version(version)}; set "
            "container_runtime_toolkit: auto, with which containers get the plain devices"
        )
    is_missing = AMD_CDI not in host.files and "rocm" in host.drivers
    specification = PlanPart(commands=(("/usr/bin/amd-ctk", "cdi", "generate"),) if is_missing else ())
    if "amd-container-toolkit" in host.packages:
        return specification
    if request.source == "none":
        raise RuntimePlanError(
            "amd-container-toolkit is not on this host, and container_runtime_source is none; install it, or set "
            "container_runtime_toolkit: auto"
        )
    repository = use_repository(amd_repository(system, request, host), host)
    return repository + PlanPart(toolkit=("amd-container-toolkit",)) + specification


def format_version(version: Sequence[int]) -> str:
    """Return a version with dots between its numbers."""
    return ".".join(str(number) for number in version)


def list_names(names: Sequence[str]) -> str:
    """Return the first ten names and the number of the others."""
    shown = sorted(names)[:10]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
