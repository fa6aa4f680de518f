# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for Huawei's driver, firmware and CANN: a host and its chips in, the missing steps out."""

from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from ...module_utils.cann.answers import Installed, mismatch
from ...module_utils.cann.chips import STACK, AscendChip, CannHardware, chip_of, hardware_of
from ...module_utils.cann.installers import CANN, DRIVER, FIRMWARE, USER, RunFile, choose_file, installer_of, read_files
from ...module_utils.cann.packages import (
    DKMS,
    build_packages,
    hdk_packages,
    is_ours,
    package,
    platform,
    repository,
    resolved,
)
from ...module_utils.cann.proof import KIND
from ...module_utils.cann.versions import is_older, is_same
from ...module_utils.common.run_file import Installer
from ...module_utils.vendor_stack.model import (
    APT,
    DISTRO,
    HALT,
    INSTALL,
    NONE,
    RETAIN,
    VENDOR,
    Command,
    DriverPlan,
    Group,
    Host,
    Package,
    Repository,
    StackError,
    User,
)
from ...module_utils.vendor_stack.packages import check_secure_boot, is_installed
from ..planning.inputs import PlanError
from ..vendor_stack.action import Stack, StackInputs

PACKAGES = "packages"
RUN = "run"
AUTO = "auto"


@dataclass(frozen=True)
class MatrixRow:
    """Versions of CANN, driver and firmware that belong together; ``firmware`` is empty where unknown.

    ``oldest`` is the oldest driver that Huawei lists as compatible with this CANN, empty where the row's own counts.
    """

    cann: str
    driver: str
    firmware: str = ""
    oldest: str = ""

    @property
    def minimum(self) -> str:
        """The oldest driver that is retained."""
        return self.oldest or self.driver


@dataclass(frozen=True)
class CannRequest:
    """The site's request: a row of the matrix, which its release names unless ``asked`` is set.

    ``asked`` is true if the site has set the driver's version itself. ``mirror`` and ``key`` replace the public
    addresses of the repository and its key, which are used where these are empty. ``toolkit``: whether CANN itself is
    requested on the host; containers have their own.
    """

    release: str
    row: MatrixRow
    asked: bool = False
    source: str = VENDOR
    policy: str = RETAIN
    mirror: str = ""
    key: str = ""
    format: str = AUTO
    files: tuple[RunFile, ...] = ()
    licence_accepted: bool = False
    toolkit: bool = False
    user: str = USER
    group: str = USER
    hold: bool = True


@dataclass(frozen=True)
class _Need:
    """The components to install, in this order; ``upgrade``: whether they replace an installed driver."""

    components: tuple[str, ...] = ()
    upgrade: bool = False
    notes: tuple[str, ...] = ()


def plan_driver(
    host: Host,
    hardware: CannHardware,
    installed: Installed,
    request: CannRequest,
    offered: Mapping[str, Sequence[str]] | None = None,
) -> DriverPlan:
    """Return the missing steps. Raises StackError for a request that cannot be met.

    ``offered`` are the versions of each package that the repositories have, None before these are configured.
    """
    chip = chip_of(hardware)
    _check_source(host, request)
    need = _needed_hdk(installed, request)
    need = replace(need, components=(*need.components, *_needed_cann(installed, request)))
    _check_policy(need, installed, request)
    if DRIVER in need.components:
        check_secure_boot(host)
    built = bool(need.components) or any(build.module.startswith(DKMS) for build in host.dkms)
    wanted = tuple(build_packages(host)) if built and request.source != NONE else ()
    ours, installers = _packages_or_installers(host, chip, installed, request, need)
    if offered is not None:
        ours, need = _resolve_versions(ours, need, offered)
    _check_origin(host, need, request)
    users, groups = _accounts(installed, request, need)
    return DriverPlan(
        groups=groups,
        users=users,
        repositories=(_repository(host, request, need),) if ours else (),
        packages=(*(one for one in wanted if not is_installed(host, one)), *ours),
        in_order=True,
        installers=installers,
        replaces=installed.running or installed.driver if need.upgrade else "",
        finish=_finishing_commands(host, DRIVER in need.components),
        hold=_packages_to_hold(host, ours) if request.hold else (),
        reboot=_reboot_reasons(host, installed, need, request),
        notes=(*need.notes, *_notes(host, hardware, installed, request, ours)),
    )


def _check_source(host: Host, request: CannRequest) -> None:
    if request.source == DISTRO:
        raise StackError(
            f"no distribution has Huawei's driver, not even {host.title}; set cann_source to vendor, mirror or none"
        )
    if request.format == PACKAGES and request.files:
        raise StackError("cann_format is packages and cann_run_files has files; remove one of them")
    if request.format == RUN and not request.files:
        raise StackError("cann_format is run and cann_run_files is empty; name the files with url and sha256")
    if request.source != NONE:
        platform(host)


def _format(request: CannRequest) -> str:
    return RUN if request.files else PACKAGES


def _packages_or_installers(
    host: Host, chip: AscendChip, installed: Installed, request: CannRequest, need: _Need
) -> tuple[tuple[Package, ...], tuple[Installer, ...]]:
    """Return the packages or installers of the needed components, in their order."""
    if _format(request) == PACKAGES:
        return tuple(package(host, chip, word, _version_of(word, request.row)) for word in need.components), ()
    files = [
        (choose_file(request.files, word, chip.word, _version_of(word, request.row), host.architecture), word)
        for word in need.components
    ]
    return (), tuple(
        installer_of(file, _replaces(word, need, installed), request.user, request.group) for file, word in files
    )


def _resolve_versions(
    ours: tuple[Package, ...], need: _Need, offered: Mapping[str, Sequence[str]]
) -> tuple[tuple[Package, ...], _Need]:
    """Return the packages at the repository's versions, and the needed components without those that it never has.

    Whether Huawei's repositories have firmware at all is UNCONFIRMED; its guides install only the driver from them.
    """
    named = dict(zip(need.components, ours))
    lacking = [word for word in named if word == FIRMWARE and not offered[named[word].name]]
    if lacking and DRIVER in need.components:
        words = f"the repository has no {named[FIRMWARE].name}: firmware stays unchanged, unless a .run file is named"
        rest = tuple(word for word in need.components if word != FIRMWARE)
        need, named = replace(need, components=rest, notes=(*need.notes, words)), {word: named[word] for word in rest}
    return tuple(resolved(one, offered[one.name]) for one in named.values()), need


def _repository(host: Host, request: CannRequest, need: _Need) -> Repository:
    return repository(host, request.mirror, request.key, with_cann=any(word in CANN for word in need.components))


def _needed_hdk(installed: Installed, request: CannRequest) -> _Need:
    """Return which of driver and firmware to install. Raises StackError where policy or source forbid it."""
    row = request.row
    with_firmware = bool(row.firmware) or any(file.component == FIRMWARE for file in request.files)
    note = () if with_firmware else (f"release {request.release} names no firmware, so it stays unchanged",)
    if not installed.driver or not installed.complete:
        if request.source == NONE:
            there = "its installation was not completed" if installed.driver else "it is not on the host"
            raise StackError(
                f"Huawei's driver is needed, {there}, and cann_source is none; install it, or set cann_source"
            )
        return _Need((DRIVER, FIRMWARE) if with_firmware else (DRIVER,), notes=note)
    why = _fault_of_installed(installed, request)
    differs = request.asked and not is_same(installed.driver, row.driver)
    if not why and not (differs and request.policy != RETAIN):
        return _Need(notes=_retained_notes(installed, request))
    why = why or f"driver {installed.driver} is on the host, cann_driver_version asks for {row.driver}"
    if request.policy != INSTALL or request.source == NONE:
        raise StackError(
            f"{why}, and cann_policy is {request.policy} with cann_source {request.source}; set cann_policy to install "
            "and a source, or choose a release that works with it"
        )
    components = []
    if with_firmware and not (row.firmware and is_same(installed.firmware, row.firmware)):
        components.append(FIRMWARE)
    if not is_same(installed.driver, row.driver):
        components.append(DRIVER)
    if not components:
        raise StackError(f"{why}; release {request.release} names no firmware that fits: set cann_firmware_version")
    return _Need(tuple(components), upgrade=True, notes=note)


def _retained_notes(installed: Installed, request: CannRequest) -> tuple[str, ...]:
    """Return a note for each retained component that differs from the row and is compatible."""
    pairs = ((DRIVER, installed.driver, request.row.driver), (FIRMWARE, installed.firmware, request.row.firmware))
    return tuple(
        f"{word} {there} is retained, the row of release {request.release} has {named}"
        for word, there, named in pairs
        if there and named and not is_same(there, named)
    )


def _fault_of_installed(installed: Installed, request: CannRequest) -> str:
    """Return why driver and firmware on the host are not acceptable, empty where they are."""
    if is_older(installed.driver, request.row.minimum):
        return (
            f"driver {installed.driver} is on the host, release {request.release} needs {request.row.minimum} or newer "
            f"with CANN {request.row.cann}"
        )
    return mismatch(installed)


def _needed_cann(installed: Installed, request: CannRequest) -> tuple[str, ...]:
    """Return the parts of CANN to install. Raises StackError where the installed ones belong to another row."""
    if not request.toolkit:
        return ()
    other = {part: version for part, version in installed.cann.items() if not is_same(version, request.row.cann)}
    missing = tuple(part for part in CANN if part not in installed.cann or part in other)
    if other and (request.policy != INSTALL or request.source == NONE):
        words = ", ".join(f"{part} {version}" for part, version in other.items())
        raise StackError(
            f"CANN on the host is {words}, release {request.release} belongs to {request.row.cann}, and cann_policy is "
            f"{request.policy} with cann_source {request.source}; set cann_policy to install and a source, or choose a "
            "release that works with it"
        )
    if missing and request.source == NONE:
        raise StackError(f"CANN {request.row.cann} lacks {', '.join(missing)}, and cann_source is none")
    return missing


def _check_policy(need: _Need, installed: Installed, request: CannRequest) -> None:
    """Raise StackError where policy, licence or user forbid an installation."""
    if not need.components:
        return
    words = ", ".join(f"{component} {_version_of(component, request.row)}".strip() for component in need.components)
    if request.policy == HALT:
        raise StackError(f"cann_policy is halt, and these are to be installed: {words}")
    if not request.licence_accepted:
        raise StackError(
            f"{words} would be installed, and Huawei's licence for them is not accepted; read it where the files come "
            "from (hiascend.com, or the .run file with --check), then set cann_licence_accepted to true"
        )
    if installed.group and installed.group != request.group:
        raise StackError(
            f"user {request.user} is in group {installed.group}, Huawei's installer expects {request.group}; "
            f"correct it with 'usermod --gid {request.group} {request.user}', or set cann_group"
        )


def _replaces(component: str, need: _Need, installed: Installed) -> bool:
    """Return whether a component replaces another version of it."""
    return need.upgrade and (component != FIRMWARE or bool(installed.firmware))


def _check_origin(host: Host, need: _Need, request: CannRequest) -> None:
    """Raise StackError where packages would replace an installation by a .run file, or the other way round."""
    packaged = sorted(hdk_packages(host))
    if not need.upgrade or bool(packaged) == (_format(request) == PACKAGES):
        return
    if packaged:
        raise StackError(
            f"{', '.join(packaged)} came as packages, which .run files do not replace; leave cann_run_files empty, or "
            "remove the packages"
        )
    raise StackError(
        "the driver on the host came from a .run file, which packages do not replace; name the new .run files in "
        "cann_run_files, or remove it with its installer's --uninstall"
    )


def _version_of(component: str, row: MatrixRow) -> str:
    """Return the version of a component in a row of the matrix."""
    return {DRIVER: row.driver, FIRMWARE: row.firmware}.get(component, row.cann)


def _accounts(installed: Installed, request: CannRequest, need: _Need) -> tuple[tuple[User, ...], tuple[Group, ...]]:
    """Return user and group, which must exist before an installer runs."""
    if not need.components or installed.group:
        return (), ()
    user = User(request.user, request.group, (), f"/home/{request.user}", "/bin/bash")
    return (user,), () if installed.has_group else (Group(request.group, system=False),)


def _finishing_commands(host: Host, is_new: bool) -> tuple[Command, ...]:
    """Return the commands that build missing modules; an installer builds those of the running kernel itself."""
    ours = [build for build in host.dkms if build.module.startswith(DKMS)]
    built = {host.kernel} if is_new else {build.kernel for build in ours if build.state == "installed"}
    return tuple(
        Command(("dkms", "autoinstall", "-k", kernel), f"kernel {kernel} has no module of the driver")
        for kernel in host.kernels
        if (is_new or ours) and kernel not in built
    )


def _packages_to_hold(host: Host, packages: tuple[Package, ...]) -> tuple[str, ...]:
    return tuple(sorted({name for name in (*host.packages, *(one.name for one in packages)) if is_ours(name)}))


def _reboot_reasons(host: Host, installed: Installed, need: _Need, request: CannRequest) -> tuple[str, ...]:
    """Return why a reboot is needed, now or after the missing components are installed.

    UNCONFIRMED: that npu-smi reports the running firmware by the number in version.info.
    """
    there = {DRIVER: installed.driver, FIRMWARE: installed.firmware}
    running = {DRIVER: installed.running, FIRMWARE: installed.running_firmware}
    if DRIVER in need.components or FIRMWARE in need.components:
        due = [word for word in need.components if need.upgrade and running.get(word)]
        return tuple(
            f"{word} {running[word]} runs, {_version_of(word, request.row) or 'another'} takes its place"
            for word in due
        )
    if KIND.module not in host.modules:
        return (f"driver {installed.driver} is installed and not loaded",)
    return tuple(
        f"{word} {running[word]} runs, {version} is installed"
        for word, version in there.items()
        if version and running[word] and not is_same(version, running[word])
    )


def _notes(
    host: Host, hardware: CannHardware, installed: Installed, request: CannRequest, ours: tuple[Package, ...]
) -> tuple[str, ...]:
    reasons = {npu.model: npu.unsupported for npu in hardware.npus if npu.unsupported}
    notes = [f"nothing can be served on {model}: {reason}" for model, reason in sorted(reasons.items())]
    other = installed.cann.get("toolkit", "")
    if not request.toolkit and other and not is_same(other, request.row.cann):
        notes.append(
            f"CANN {other} is on the host, release {request.release} has {request.row.cann}: containers have their own"
        )
    if host.manager == APT and any("ascend-cann" in one.name for one in ours):
        notes.append("packages of CANN may ask for the licence at a terminal; name .run files if they fail")
    return tuple(notes)


class CannStack(Stack):
    """Decide what Huawei's driver, firmware and CANN need."""

    name = STACK
    state_options = ("user", "group")

    def request(self, options: Mapping[str, Any], release: Mapping[str, Any]) -> CannRequest:
        return CannRequest(
            release=options["release"],
            row=_row(options, release),
            asked=bool(options["driver_version"]),
            source=options["source"],
            policy=options["policy"],
            mirror=options["mirror"],
            key=options["repository_key"],
            format=options["format"],
            files=read_files(options["run_files"]),
            licence_accepted=options["licence_accepted"],
            toolkit=options["toolkit"],
            user=options["user"],
            group=options["group"],
            hold=options["hold"],
        )

    def plan(self, inputs: StackInputs, offered: Mapping[str, Sequence[str]] | None) -> DriverPlan:
        return plan_driver(
            inputs.host, _hardware(inputs), Installed(**inputs.state["installed"]), inputs.request, offered
        )

    def version_packages(self, plan: DriverPlan) -> list[str]:
        return [package.name for package in plan.packages if is_ours(package.name)]

    def further_results(self, inputs: StackInputs) -> dict[str, Any]:
        row = inputs.request.row
        return {
            "minimum_driver": row.minimum,
            "cann_version": row.cann,
            "nodes": list(_hardware(inputs).nodes),
            "driver": inputs.state["driver"],
        }


def _hardware(inputs: StackInputs) -> CannHardware:
    return hardware_of(inputs.detected, inputs.catalogue)


def _row(options: Mapping[str, Any], release: Mapping[str, Any]) -> MatrixRow:
    """Return the matching versions: those of the release, or the site's own. Raises PlanError where unknown."""
    cann = options["version"] or release.get("cann", "")
    driver = options["driver_version"] or release.get("hdk", "")
    if not cann or not driver:
        lacking = (
            "no version of CANN (cann); set cann_version" if not cann else "no driver (hdk); set cann_driver_version"
        )
        raise PlanError(f"release {options['release']!r} names {lacking} or choose another cann_release")
    # The release's firmware is only for the release's driver.
    firmware = "" if options["driver_version"] else release.get("firmware", "")
    # So is the oldest driver for its CANN.
    oldest = "" if options["driver_version"] or options["version"] else release.get("minimum_driver", "")
    return MatrixRow(cann, driver, options["firmware_version"] or firmware, oldest)
