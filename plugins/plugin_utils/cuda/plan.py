# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for NVIDIA's driver: a host and its chips in, the missing steps out."""

from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from ...module_utils.common.versions import at_least, newest, upstream_version
from ...module_utils.cuda.chips import (
    IMEX,
    NVLINK5,
    STACK,
    CudaHardware,
    check_supported,
    flavour_of,
    hardware_of,
    oldest_driver,
)
from ...module_utils.cuda.packages import (
    DEBIAN_BRANCHES,
    Driver,
    driver_packages,
    fabric_packages,
    is_driver,
    is_fabric,
    is_kernel,
    is_pinning,
    kernel_packages,
    on_disk,
    pinning_packages,
    platform,
    prebuilt_packages,
    preparation,
    repositories,
    signed_package,
)
from ...module_utils.cuda.proof import is_foreign
from ...module_utils.vendor_stack.model import (
    APT,
    DISTRO,
    HALT,
    INSTALL,
    NONE,
    RETAIN,
    VENDOR,
    Command,
    ConfigFile,
    DriverPlan,
    Host,
    Package,
    StackError,
    branch_of,
)
from ...module_utils.vendor_stack.packages import (
    build_missing,
    check_secure_boot,
    exact,
    header_packages,
    is_installed,
    rebuild_initramfs,
)
from ..planning.inputs import PlanError
from ..vendor_stack.action import Stack, StackInputs

NOUVEAU = ConfigFile(
    "/etc/modprobe.d/baremetal-nouveau.conf", "blacklist nouveau\noptions nouveau modeset=0\n", in_initramfs=True
)
# Ubuntu's unit starts it with persistence mode off.
PERSISTENCE = ConfigFile(
    "/etc/systemd/system/nvidia-persistenced.service.d/baremetal.conf",
    "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --persistence-mode --verbose\n",
    restarts="nvidia-persistenced",
)
NVLINK5_MODULES = ConfigFile("/etc/modules-load.d/baremetal-nvlink5.conf", "mlx5_core\nib_umad\n")
# Dependent modules first.
UNLOAD = ("nvidia_peermem", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia", "nouveau")
FILES = (NOUVEAU, PERSISTENCE, NVLINK5_MODULES)


@dataclass(frozen=True)
class CudaRequest:
    """The site's request: ``version`` is a branch or an exact version, empty for the branch of the release's minimum.

    ``mirror`` and ``epel`` replace the public addresses of the repositories, which are used where these are empty.
    """

    release: str
    minimum: str
    version: str = ""
    source: str = VENDOR
    policy: str = RETAIN
    mirror: str = ""
    epel: str = ""
    hold: bool = True


@dataclass(frozen=True)
class _Change:
    """The outcome for the packages: the driver is retained, or another one is installed."""

    version: str
    packages: tuple[Package, ...]
    remove_first: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    prepare: tuple[Command, ...] = ()
    notes: tuple[str, ...] = ()
    is_new: bool = False


def plan_driver(
    host: Host, hardware: CudaHardware, request: CudaRequest, offered: Sequence[str] | None = None
) -> DriverPlan:
    """Return the missing steps for the driver. Raises StackError for a request that cannot be met.

    ``offered`` are the versions of the kernel module's package that the repositories have, None before these are
    configured: then the plan has ``580.*`` where it will have one exact version.
    """
    if not hardware.gpus:
        raise StackError("no NVIDIA chip is on PCI; take the host out of accel_cuda, or check why lspci lists none")
    if request.source != NONE:
        platform(host)
    is_due = _needs_driver(host, request)
    if not is_due and is_foreign(host) and "nouveau" not in host.modules:
        # A driver that no package owns cannot be completed by packages; the proof shows whether it works.
        note = f"driver {_loaded_version(host)} was not installed from packages; it stays unchanged"
        return DriverPlan(notes=(note, *_notes(hardware)))
    change = (
        _plan_installation(host, hardware, request, offered) if is_due else _plan_retention(host, hardware, request)
    )
    wanted = (*change.packages, *_interrupted_packages(host, request, change))
    missing = tuple(package for package in wanted if not is_installed(host, package))
    remove = (*change.remove, *_superfluous_fabric(host, hardware, change))
    _check_policy(host, request, missing, remove, change)
    needs = missing if request.source != NONE else ()
    ours = any(is_driver(package.name) for package in needs)
    reboot = _reboot_reasons(host, change)
    return DriverPlan(
        replaces=(_loaded_version(host) or "") if reboot else "",
        unload=tuple(name for name in UNLOAD if name in host.modules) if reboot else (),
        remove_first=change.remove_first,
        repositories=repositories(host, request.source, request.mirror, request.epel) if ours else (),
        prepare=change.prepare,
        packages=needs,
        remove=remove,
        hold=_packages_to_hold(host, change.packages, remove) if request.hold else (),
        files=(NOUVEAU, PERSISTENCE, *((NVLINK5_MODULES,) if hardware.fabric == NVLINK5 else ())),
        finish=_finishing_commands(host, hardware, change, bool(reboot)),
        services=("nvidia-persistenced", *(("nvidia-fabricmanager",) if hardware.fabric else ())),
        reboot=reboot,
        notes=(*change.notes, *_notes(hardware)),
        pins=tuple(name for name in host.packages if is_pinning(name)),
    )


def _needs_driver(host: Host, request: CudaRequest) -> bool:
    """Return whether a driver must be installed. Raises StackError where policy or source forbid it."""
    current = on_disk(host) or _loaded_version(host)
    if current is None:
        if request.source == NONE:
            raise StackError("no NVIDIA driver is on the host and cuda_source is none; install one, or set cuda_source")
        return True
    asked = request.version and not _is_version(current, request.version)
    if at_least(current, request.minimum) and not (asked and request.policy != RETAIN):
        return False
    if request.policy == INSTALL and request.source != NONE:
        if on_disk(host) is None:
            raise StackError(
                f"driver {current} was not installed from packages, which cannot replace it; remove it with "
                "nvidia-uninstall"
            )
        return True
    wanted = f"cuda_version asks for {request.version}"
    if not at_least(current, request.minimum):
        wanted = f"release {request.release} needs {request.minimum} or newer"
    raise StackError(
        f"driver {current} is on the host, {wanted}, and cuda_policy is {request.policy} with cuda_source "
        f"{request.source}; set cuda_policy to install and a source, or choose a release that works with it"
    )


def _is_version(version: str, wanted: str) -> bool:
    """Return whether a version is the requested one or belongs to the requested branch."""
    return version == wanted or version.startswith(f"{wanted}.")


def _plan_installation(
    host: Host, hardware: CudaHardware, request: CudaRequest, offered: Sequence[str] | None
) -> _Change:
    branch, version = _target_version(host, hardware, request, offered)
    flavour, notes = flavour_of(hardware.gpus, branch)
    driver = Driver(branch, version, flavour, pin=request.version or str(branch))
    packages = [*header_packages(host), *driver_packages(host, request.source, driver)]
    if hardware.fabric:
        packages += fabric_packages(host, request.source, version or f"{branch}.*", hardware.fabric == NVLINK5)
    check_secure_boot(host, signed_package(host, driver))
    names = {package.name for package in packages}
    remove = tuple(name for name in (*sorted(kernel_packages(host)), *prebuilt_packages(host)) if name not in names)
    remove_first: tuple[str, ...] = ()
    if host.manager == APT and request.source != DISTRO and "cuda-keyring" in host.packages:
        remove_first = ("cuda-keyring",)
        notes += ("cuda-keyring is removed: apt refuses a repository that two files name with different keys",)
    return _Change(
        version or str(branch),
        tuple(packages),
        remove_first,
        remove,
        preparation(host, request.source, driver),
        notes,
        is_new=True,
    )


def _target_version(
    host: Host, hardware: CudaHardware, request: CudaRequest, offered: Sequence[str] | None
) -> tuple[int, str | None]:
    """Return branch and, where known, version of the driver to install."""
    wanted = request.version or str(branch_of(oldest_driver(hardware.gpus, request.minimum)))
    if request.source == DISTRO and host.distribution == "debian":
        wanted = str(DEBIAN_BRANCHES[host.major])
        if request.version and not _is_version(request.version, wanted):
            raise StackError(
                f"{host.title} has driver branch {wanted} of its own, cuda_version asks for {request.version}"
            )
    version: str | None = wanted if "." in wanted else None
    if offered is not None:
        fit = [text for text in map(upstream_version, offered) if _is_version(text, wanted)]
        if not fit:
            found = ", ".join(sorted(set(map(upstream_version, offered)))) or "none"
            raise StackError(f"the repository has no driver {wanted}; it has {found}; correct cuda_version")
        version = newest(fit)
    enough = at_least(version, request.minimum) if version else branch_of(wanted) >= branch_of(request.minimum)
    if not enough:
        raise StackError(
            f"release {request.release} needs driver {request.minimum} or newer, {request.source} packages of "
            f"{host.title} would be {version or f'branch {wanted}'}; "
            + ("set cuda_source to vendor or mirror" if request.source == DISTRO else "correct cuda_version")
        )
    check_supported(hardware.gpus, branch_of(wanted), version)
    return branch_of(wanted), version


def _plan_retention(host: Host, hardware: CudaHardware, request: CudaRequest) -> _Change:
    """Return the steps that a retained driver needs: headers for its modules, the fabric manager of its version."""
    version = on_disk(host) or _loaded_version(host) or ""
    packages = [*pinning_packages(host, request.source, version, request.version)]
    packages += header_packages(host) if kernel_packages(host) else []
    if hardware.fabric:
        fabric = fabric_packages(host, request.source, version, hardware.fabric == NVLINK5)
        # Only the version counts, not the source of the package.
        there = version in (upstream_version(text) for name, text in host.packages.items() if is_fabric(name))
        packages += [package for package in fabric if not there or package.version is None]
    asked = request.version and not _is_version(version, request.version)
    notes = (f"driver {version} is retained, cuda_version asks for {request.version}",) if asked else ()
    return _Change(version, tuple(packages), notes=notes)


def _interrupted_packages(host: Host, request: CudaRequest, change: _Change) -> list[Package]:
    """Return further packages of the driver with an interrupted installation, at the version of the plan."""
    names = {package.name for package in change.packages}
    version = exact(change.version, host.manager) if "." in change.version else f"{change.version}.*"
    # A distribution's packages of one driver may have versions of their own.
    at = None if request.source == DISTRO else version
    return [Package(name, at) for name in host.unfinished if is_driver(name) and name not in names]


def _superfluous_fabric(host: Host, hardware: CudaHardware, change: _Change) -> tuple[str, ...]:
    """Return installed fabric managers of a host without switches, and those that another one replaces."""
    if hardware.fabric and not change.is_new:
        return ()
    names = {package.name for package in change.packages}
    return tuple(name for name in sorted(host.packages) if is_fabric(name) and name not in names)


def _check_policy(
    host: Host, request: CudaRequest, missing: Sequence[Package], remove: Sequence[str], change: _Change
) -> None:
    """Raise StackError where policy or source forbid a step of the plan."""
    fabric = [package.spec(host.manager) for package in missing if is_fabric(package.name)]
    if request.source == NONE and fabric:
        raise StackError(
            f"this machine's NVSwitches need {fabric[0]}, exactly the driver's version, and cuda_source is none; "
            "install it, or set cuda_source"
        )
    words = [f"install {package.spec(host.manager)}" for package in missing] + [f"remove {name}" for name in remove]
    if request.policy == HALT and words:
        what = "a driver is to be installed" if change.is_new else f"driver {change.version} needs more"
        raise StackError(f"cuda_policy is halt, and {what}: {', '.join(words)}")


def _packages_to_hold(host: Host, packages: Sequence[Package], remove: Sequence[str]) -> tuple[str, ...]:
    names = {*host.packages, *(package.name for package in packages)} - set(remove)
    return tuple(sorted(name for name in names if is_driver(name)))


def _loaded_version(host: Host) -> str | None:
    return host.modules["nvidia"].version if "nvidia" in host.modules else None


def _finishing_commands(host: Host, hardware: CudaHardware, change: _Change, waits: bool) -> tuple[Command, ...]:
    commands: list[Command] = []
    if not change.is_new and kernel_packages(host):
        commands += build_missing(host, "nvidia", min(kernel_packages(host)))
    if change.is_new or "nouveau" in host.modules:
        commands.append(rebuild_initramfs(host, "nouveau must not come back from the initial file system"))
    if not waits and "nvidia" not in host.modules:
        commands.append(Command(("modprobe", "nvidia"), "nothing uses the chips, so no reboot is needed"))
    if hardware.fabric == NVLINK5:
        lacking = [name for name in ("mlx5_core", "ib_umad") if name not in host.modules]
        commands += [Command(("modprobe", name), "the fabric manager of NVLink 5 needs it") for name in lacking]
    return tuple(commands)


def _reboot_reasons(host: Host, change: _Change) -> tuple[str, ...]:
    why = []
    if "nouveau" in host.modules:
        why.append("nouveau is loaded and holds the chips")
    loaded = _loaded_version(host)
    if loaded and change.is_new:
        why.append(f"the loaded driver is {loaded}, {change.version} takes its place")
    elif loaded and loaded != change.version:
        why.append(f"the loaded driver is {loaded}, the installed one is {change.version}")
    return tuple(why)


def _notes(hardware: CudaHardware) -> tuple[str, ...]:
    reasons = {gpu.model: gpu.unsupported for gpu in hardware.gpus if gpu.unsupported}
    notes = [f"nothing can be served on {model}: {reason}" for model, reason in sorted(reasons.items())]
    if any(gpu.driver.get("fabric") == IMEX for gpu in hardware.gpus):
        notes.append(
            "an instance uses the chips of this tray: NVLink to other trays of the rack needs nvidia-imex with a list "
            "of them, which this role does not install"
        )
    if hardware.fabric == NVLINK5 and not hardware.management_ports:
        notes.append("eight chips of an NVLink 5 board, but no management port of its switches was seen")
    return tuple(notes)


class CudaStack(Stack):
    """Decide what NVIDIA's driver needs."""

    name = STACK
    paths = tuple(file.path for file in FILES)

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> CudaRequest:
        minimum = release.get("minimum_driver") or options["version"]
        if not minimum:
            name = options["release"]
            raise PlanError(
                f"vLLM release {name!r} does not say which NVIDIA driver it needs; set cuda_version to a driver branch "
                'such as "580", or set vllm_release (cuda_release) to another release'
            )
        return CudaRequest(
            options["release"],
            minimum,
            options["version"],
            options["source"],
            options["policy"],
            options["mirror"],
            options["epel_mirror"],
            options["hold"],
        )

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        # The module's package decides on the version of all.
        versions = next(iter(offered.values())) if offered else None
        return plan_driver(inputs.host, _hardware(inputs), inputs.request, versions)

    def version_packages(self, plan: DriverPlan) -> list[str]:
        return [package.name for package in plan.packages if is_kernel(package.name)]

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        return {
            "minimum_driver": inputs.request.minimum,
            "fabric": _hardware(inputs).fabric or "none",
            "driver": inputs.state["driver"],
        }


def _hardware(inputs: StackInputs) -> CudaHardware:
    return hardware_of(inputs.detected, inputs.catalogue, inputs.state["fabric"] == NVLINK5)
