# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for AMD's driver: a host and its chips in, the missing steps out."""

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ...module_utils.common.credentials import redact_credentials
from ...module_utils.common.versions import at_least, version_key
from ...module_utils.rocm.chips import MODULES, STACK, RocmHostState
from ...module_utils.rocm.packages import (
    DRIVER,
    INSTALLERS,
    INSTALLERS_FILES,
    NO_USERSPACE,
    PREFERENCES,
    driver_packages,
    driver_repository,
    is_driver,
    is_of,
    kernel_extras,
    on_disk,
    own_packages,
)
from ...module_utils.rocm.releases import NEEDS, Release, release_of
from ...module_utils.rocm.settings import GRUB_FILE, NUMA, Settings, steps
from ...module_utils.vendor_stack.chips import Chip, chips_of
from ...module_utils.vendor_stack.model import (
    APT,
    DISTRO,
    HALT,
    INSTALL,
    MIRROR,
    NONE,
    RETAIN,
    VENDOR,
    Command,
    DriverPlan,
    Host,
    Package,
    Repository,
    StackError,
)
from ...module_utils.vendor_stack.packages import (
    build_missing,
    check_secure_boot,
    debian_archive,
    epel,
    is_installed,
    rebuild_initramfs,
)
from ..vendor_stack.action import Stack, StackInputs
from .userspace import UserspaceRequest, plan_userspace

MODULE = MODULES[0]


@dataclass(frozen=True)
class RocmRequest:
    """The site's request.

    ``rocm`` is None if neither the site nor the release of vLLM names one; ``is_asked``: whether the site does.
    ``minimum`` is the oldest driver that the release of vLLM works with, empty for any. ``mirror`` and ``epel``
    replace the public addresses of the repositories, which are used where these are empty.
    """

    release: str
    rocm: Release | None
    is_asked: bool = False
    minimum: str = ""
    source: str = VENDOR
    policy: str = RETAIN
    mirror: str = ""
    epel: str = ""
    hold: bool = True
    userspace: str = NO_USERSPACE
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class _Change:
    """The outcome for the driver: it is retained, or another one is installed."""

    version: str
    packages: tuple[Package, ...] = ()
    repositories: tuple[Repository, ...] = ()
    notes: tuple[str, ...] = ()
    is_new: bool = False


def plan_driver(
    host: Host,
    chips: Sequence[Chip],
    shown: RocmHostState,
    request: RocmRequest,
    offered: Mapping[str, Sequence[str]] | None = None,
) -> DriverPlan:
    """Return the missing steps for the driver. Raises StackError for a request that cannot be met.

    ``offered`` are the versions in the repositories by package, None before these are configured.
    """
    if not chips:
        raise StackError("no AMD chip is on PCI; take the host out of accel_rocm, or check why lspci lists none")
    settled = steps(host, shown, request.settings)
    is_due = _needs_driver(host, chips, shown, request)
    if is_due and request.source == DISTRO:
        change = _plan_own_driver(host, chips, shown, request)
    elif is_due:
        change = _plan_installation(host, chips, request, offered)
    else:
        change = _plan_retention(host, request)
    wanted = UserspaceRequest(request.userspace, request.rocm, request.source, request.policy, request.mirror)
    extra = plan_userspace(host, shown, chips, wanted)
    # With the source none nothing is installed; the checks of proof.py report what is missing.
    packages = () if request.source == NONE else (*change.packages, *extra.packages)
    missing = tuple(package for package in packages if not is_installed(host, package))
    _check_policy(request, missing, change)
    repositories = (
        *(change.repositories if any(package in missing for package in change.packages) else ()),
        *(extra.repositories if any(package in missing for package in extra.packages) else ()),
    )
    lacks_firmware = not change.version and bool(missing) and bool(_not_driven(chips, shown))
    why = _replacement_reasons(host, shown, change, lacks_firmware)
    return DriverPlan(
        groups=settled.groups,
        users=settled.users,
        replaces=_describe_loaded(host) if why else "",
        unload=tuple(name for name in MODULES if name in host.modules) if why else (),
        remove_first=(*_conflicting_packages(host, shown, repositories), *extra.remove_first),
        repositories=repositories,
        packages=missing,
        hold=_packages_to_hold(host, change.packages) if request.hold else (),
        files=(*settled.files, *extra.files),
        finish=(*_finishing_commands(host, change, bool(why)), *settled.finish),
        reboot=(*why, *settled.reboot),
        notes=(*change.notes, *extra.notes, *settled.notes, *_notes(chips)),
    )


def minimum_of(chips: Sequence[Chip], request: RocmRequest) -> tuple[str, str]:
    """Return the oldest acceptable driver, and what requires it. Both are empty where any driver is acceptable.

    The kernel's own driver has no version to compare, so a site that requests it (source distro) has no minimum.
    """
    if request.source == DISTRO:
        return "", ""
    needs = [
        (NEEDS[chip.generation].module, f"{chip.generation} ({chip.model})")
        for chip in chips
        if chip.generation in NEEDS
    ]
    if request.minimum:
        needs.append((request.minimum, f"release {request.release}"))
    return max(needs, key=lambda need: version_key(need[0]), default=("", ""))


def _needs_driver(host: Host, chips: Sequence[Chip], shown: RocmHostState, request: RocmRequest) -> bool:
    """Return whether a driver must be installed. Raises StackError where policy or source forbid it."""
    if request.source in (VENDOR, MIRROR) and any(is_driver(name) for name in host.unfinished):
        # An interrupted installation must be completed, whichever driver is loaded.
        return True
    current = on_disk(host) or _loaded_version(host)
    if current is None:
        return _needs_driver_beside_own(host, chips, shown, request)
    if request.source == DISTRO and request.policy == INSTALL:
        raise StackError(
            f"driver {current} of AMD's is on the host and rocm_source is distro; remove {DRIVER} and reboot for the "
            "kernel's own, or set rocm_source to vendor"
        )
    minimum, who = minimum_of(chips, request)
    asked = request.is_asked and request.rocm is not None and not is_of(current, request.rocm)
    enough = not minimum or at_least(current, minimum)
    if enough and not (asked and request.policy != RETAIN):
        return False
    if request.policy == INSTALL and request.source in (VENDOR, MIRROR):
        if on_disk(host) is None:
            raise StackError(
                f"driver {current} was not installed from the package {DRIVER}, which cannot replace it; remove it "
                "first"
            )
        return True
    wanted = f"{who} needs {minimum} or newer"
    if enough and request.rocm is not None:
        wanted = f"rocm_version asks for ROCm {request.rocm.rocm} with driver {request.rocm.driver}"
    raise StackError(
        f"driver {current} is on the host, {wanted}, and rocm_policy is {request.policy} with rocm_source "
        f"{request.source}; set rocm_policy to install and a source, or choose a release that works with it"
    )


def _needs_driver_beside_own(host: Host, chips: Sequence[Chip], shown: RocmHostState, request: RocmRequest) -> bool:
    """Return whether a host that has no driver, or only the kernel's own, needs another one."""
    if request.source == DISTRO:
        return True
    is_driven = MODULE in host.modules and not _not_driven(chips, shown)
    if request.source == NONE:
        if MODULE not in host.modules and not shown.has_module:
            raise StackError("no amdgpu driver is on the host and rocm_source is none; install one, or set rocm_source")
        return False
    return not (is_driven and not minimum_of(chips, request)[0] and request.policy != INSTALL)


def _plan_installation(
    host: Host, chips: Sequence[Chip], request: RocmRequest, offered: Mapping[str, Sequence[str]] | None
) -> _Change:
    release = request.rocm
    if release is None:
        raise StackError(
            f"release {request.release!r} names no version of ROCm, and a driver is to be installed; set rocm_version"
        )
    _check_chips(chips, release)
    needs_epel = host.manager != APT and "dkms" not in host.packages
    repositories = (
        *((epel(host, request.epel),) if needs_epel else ()),
        driver_repository(host, release, request.mirror),
    )
    minimum, who = minimum_of(chips, request)
    if minimum and release.module and not at_least(release.module, minimum):
        raise StackError(
            f"{who} needs driver {minimum} or newer, and ROCm {release.rocm} comes with {release.module}; choose a "
            "newer rocm_version"
        )
    check_secure_boot(host)
    packages = (*kernel_extras(host), *driver_packages(host, release, offered))
    return _Change(f"{release.driver} (ROCm {release.rocm})", packages, repositories, is_new=True)


def _check_chips(chips: Sequence[Chip], release: Release) -> None:
    for chip in chips:
        need = NEEDS.get(chip.generation)
        if need and not at_least(release.rocm, need.rocm):
            raise StackError(
                f"ROCm {release.rocm} does not support {chip.generation} ({chip.model}), {need.rocm} is the first that "
                f'does; set rocm_version to "{need.rocm}" or newer'
            )


def _plan_own_driver(host: Host, chips: Sequence[Chip], shown: RocmHostState, request: RocmRequest) -> _Change:
    """Return the steps that the kernel's own driver needs. Raises StackError where the kernel is too old for a chip.

    The kernels of RHEL and its clones have newer drivers than their version numbers suggest.
    """
    for chip in _not_driven(chips, shown):
        need = NEEDS.get(chip.generation)
        if need and host.manager == APT and not at_least(host.next_kernel, need.kernel):
            raise StackError(
                f"the driver of kernel {host.next_kernel} does not support {chip.generation} ({chip.model}), "
                f"{need.kernel} is the first that does; set rocm_source to vendor, or boot a newer kernel"
            )
    repositories: tuple[Repository, ...] = ()
    if host.distribution == "debian":
        archive = debian_archive(host, request.mirror, "debian-non-free-firmware", ("non-free-firmware",))
        repositories = (archive,)
    return _Change("", tuple(own_packages(host)), repositories, notes=_own_driver_notes(request))


def _plan_retention(host: Host, request: RocmRequest) -> _Change:
    """Return the steps that a retained driver needs: headers for its module."""
    version = on_disk(host) or _loaded_version(host)
    if version is None:
        return _Change("", notes=_own_driver_notes(request))
    packages = kernel_extras(host) if DRIVER in host.packages else []
    asked = request.is_asked and request.rocm is not None and not is_of(version, request.rocm)
    notes: tuple[str, ...] = ()
    if asked and request.rocm is not None:
        wanted = f"{request.rocm.rocm} with driver {request.rocm.driver}"
        notes = (f"driver {version} is retained, rocm_version asks for {wanted}",)
    return _Change(version, tuple(packages), notes=notes)


def _own_driver_notes(request: RocmRequest) -> tuple[str, ...]:
    if not request.minimum:
        return ("the kernel's own amdgpu is used, which has no version",)
    return (
        "the kernel's own amdgpu is used, which has no version: whether it works with release "
        f"{request.release}, which needs {request.minimum} of AMD's, was not verified",
    )


def _check_policy(request: RocmRequest, missing: Sequence[Package], change: _Change) -> None:
    """Raise StackError where policy or source forbid a step of the plan."""
    if request.policy == HALT and missing:
        what = "a driver is to be installed" if change.is_new else "the host needs more"
        names = ", ".join(package.name for package in missing)
        raise StackError(f"rocm_policy is halt, and {what}: install {names}")


def _conflicting_packages(host: Host, shown: RocmHostState, repositories: Sequence[Repository]) -> tuple[str, ...]:
    """Return packages that name the same repositories with files of their own. Raises StackError for other such files.

    apt refuses a repository that two files name with different keys.
    """
    # The host's texts come without credentials.
    urls = [redact_credentials(repository.url.rstrip("/")) for repository in repositories]
    ours = urls if host.manager == APT else []
    if not repositories:
        return ()
    remove = tuple(name for name in INSTALLERS if name in host.packages)
    for path, text in sorted(shown.sources.items()):
        twice = next((url for url in ours if url in text), None)
        if twice and not (remove and path.rpartition("/")[2].startswith(INSTALLERS_FILES)):
            raise StackError(
                f"{path} names {twice} with another key, and apt refuses a repository that two files name with "
                "different keys; delete that file, the role writes another"
            )
    return remove


def _packages_to_hold(host: Host, packages: Sequence[Package]) -> tuple[str, ...]:
    names = {*host.packages, *(package.name for package in packages)}
    return tuple(sorted(name for name in names if is_driver(name)))


def _loaded_version(host: Host) -> str | None:
    return host.modules[MODULE].version if MODULE in host.modules else None


def _describe_loaded(host: Host) -> str:
    return _loaded_version(host) or f"of kernel {host.kernel}"


def _not_driven(chips: Sequence[Chip], shown: RocmHostState) -> list[Chip]:
    return [chip for chip in chips if chip.address not in shown.driven]


def _replacement_reasons(host: Host, shown: RocmHostState, change: _Change, lacks_firmware: bool) -> tuple[str, ...]:
    """Return why the loaded driver must be replaced, nothing if it is retained."""
    if MODULE not in host.modules:
        return ()
    if change.is_new:
        return (f"the loaded driver is {_describe_loaded(host)}, {change.version} takes its place",)
    if lacks_firmware:
        return ("the loaded driver has come up without the firmware that its chips need",)
    # Without a build of AMD's module for this kernel, the loaded driver is the kernel's own.
    if shown.is_stale or (DRIVER in host.packages and not _loaded_version(host)):
        return (f"the loaded driver is {_describe_loaded(host)}, the installed one is {change.version or 'another'}",)
    return ()


def _finishing_commands(host: Host, change: _Change, waits: bool) -> tuple[Command, ...]:
    commands = []
    if not change.is_new and DRIVER in host.packages:
        commands += build_missing(host, MODULE, DRIVER)
    if change.is_new:
        commands.append(rebuild_initramfs(host, "the kernel's own driver must not come from the initial file system"))
    if not waits and MODULE not in host.modules:
        commands.append(Command(("modprobe", MODULE), "nothing uses the chips, so no reboot is needed"))
    return tuple(commands)


def _notes(chips: Sequence[Chip]) -> tuple[str, ...]:
    reasons = {chip.model: chip.unsupported for chip in chips if chip.unsupported}
    return tuple(f"nothing can be served on {model}: {reason}" for model, reason in sorted(reasons.items()))


class RocmStack(Stack):
    """Decide what AMD's driver needs."""

    name = STACK
    state_options = ("users",)
    paths = (GRUB_FILE, NUMA.path, PREFERENCES.path)

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> RocmRequest:
        asked = options["version"]
        named = asked or release.get("rocm", "")
        # The driver in the release file belongs to the ROCm version in the same file.
        driver = release.get("amdgpu", "") if named == release.get("rocm") else ""
        rocm = release_of(named, driver) if named else None
        minimum = release.get("minimum_driver", "")
        if not minimum and release.get("rocm"):
            minimum = release_of(release["rocm"], release.get("amdgpu", "")).oldest
        settings = Settings(
            options["blacklist_remove"],
            options["iommu_pt"],
            options["numa_balancing_off"],
            tuple(options["users"]),
        )
        return RocmRequest(
            options["release"],
            rocm,
            bool(asked),
            minimum,
            options["source"],
            options["policy"],
            options["mirror"],
            options["epel_mirror"],
            options["hold"],
            options["userspace"],
            settings,
        )

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        return plan_driver(
            inputs.host, _chips(inputs), RocmHostState.from_dict(inputs.state["shown"]), inputs.request, offered
        )

    def version_packages(self, plan: DriverPlan) -> list[str]:
        return [package.name for package in plan.packages if is_driver(package.name)]

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        chips = _chips(inputs)
        return {
            "minimum_driver": minimum_of(chips, inputs.request)[0],
            "chips": [chip.address for chip in chips],
            "driver": inputs.state["driver"],
        }


def _chips(inputs: StackInputs) -> tuple[Chip, ...]:
    return chips_of(STACK, inputs.detected, inputs.catalogue)
