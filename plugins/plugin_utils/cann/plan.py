# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host and its Ascend chips in, what is to be done for driver, firmware and CANN out. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.cann.answers import Installed, mismatch
from ansible_collections.baremetal.inference.plugins.module_utils.cann.chips import Chip, Hardware, chip_of
from ansible_collections.baremetal.inference.plugins.module_utils.cann.installers import (
    CANN,
    DRIVER,
    FIRMWARE,
    USER,
    RunFile,
    choose,
    installer,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cann.packages import (
    DKMS,
    build_packages,
    hdk_packages,
    is_ours,
    package,
    platform,
    repository,
    resolved,
)
from ansible_collections.baremetal.inference.plugins.module_utils.cann.proof import KIND
from ansible_collections.baremetal.inference.plugins.module_utils.cann.versions import is_older, is_same
from ansible_collections.baremetal.inference.plugins.module_utils.common.run_file import Installer
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.model import (
    APT,
    DISTRO,
    HALT,
    INSTALL,
    NONE,
    RETAIN,
    VENDOR,
    Command,
    Group,
    Host,
    Package,
    Plan,
    Repository,
    StackError,
    User,
)
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.packages import (
    check_secure_boot,
    is_installed,
)

PACKAGES = "packages"
RUN = "run"
AUTO = "auto"
FORMATS = (AUTO, PACKAGES, RUN)


@dataclass(frozen=True)
class Row:
    """What belongs together: CANN, driver and firmware by their own numbers; ``firmware`` is empty where unknown."""

    cann: str
    driver: str
    firmware: str = ""


@dataclass(frozen=True)
class Wish:
    """What the site wants: a row of the matrix, which its release names unless ``asked`` says otherwise.

    ``asked`` is whether the site has set the driver's version itself. ``mirror`` and ``key`` stand for the public
    addresses of the repository and its key, empty for these. ``toolkit`` is whether CANN itself is wanted on the host:
    containers bring their own.
    """

    release: str
    row: Row
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
    """What has to be installed, in this order; ``upgrade`` where a driver is there already."""

    components: tuple[str, ...] = ()
    upgrade: bool = False
    notes: tuple[str, ...] = ()


def plan(
    host: Host, hardware: Hardware, installed: Installed, wish: Wish, offered: Mapping[str, Sequence[str]] | None = None
) -> Plan:
    """Return what is to be done for driver, firmware and CANN; a host that cannot get it gets a plan that halts.

    ``offered`` are the versions of each package that the repositories have, None before they are there.
    """
    try:
        return _plan(host, hardware, installed, wish, offered)
    except StackError as exc:
        return Plan(halt=str(exc))


def _plan(
    host: Host, hardware: Hardware, installed: Installed, wish: Wish, offered: Mapping[str, Sequence[str]] | None
) -> Plan:
    chip = chip_of(hardware)
    _check_source(host, wish)
    need = _hdk(installed, wish)
    need = replace(need, components=(*need.components, *_cann(installed, wish)))
    _may(need, installed, wish)
    if DRIVER in need.components:
        check_secure_boot(host)
    built = bool(need.components) or any(build.module.startswith(DKMS) for build in host.dkms)
    wanted = tuple(build_packages(host)) if built and wish.source != NONE else ()
    ours, installers = _what(host, chip, installed, wish, need)
    if offered is not None:
        ours, need = _had(ours, need, offered)
    _check_origin(host, need, wish)
    users, groups = _owner(installed, wish, need)
    return Plan(
        groups=groups,
        users=users,
        repositories=(_repository(host, wish, need),) if ours else (),
        packages=(*(one for one in wanted if not is_installed(host, one)), *ours),
        in_order=True,
        installers=installers,
        replaces=installed.running or installed.driver if need.upgrade else "",
        finish=_finish(host, DRIVER in need.components),
        hold=_held(host, ours) if wish.hold else (),
        reboot=_reboot(host, installed, need, wish),
        notes=(*need.notes, *_notes(host, hardware, installed, wish, ours)),
    )


def _check_source(host: Host, wish: Wish) -> None:
    if wish.source == DISTRO:
        raise StackError(
            f"no distribution carries Huawei's driver, {host.title} neither; set cann_source to vendor, mirror or none"
        )
    if wish.format == PACKAGES and wish.files:
        raise StackError("cann_format is packages and cann_run_files has files; leave one of them out")
    if wish.format == RUN and not wish.files:
        raise StackError("cann_format is run and cann_run_files is empty; name the files with url and sha256")
    if wish.source != NONE:
        platform(host)


def _format(wish: Wish) -> str:
    return RUN if wish.files else PACKAGES


def _what(
    host: Host, chip: Chip, installed: Installed, wish: Wish, need: _Need
) -> tuple[tuple[Package, ...], tuple[Installer, ...]]:
    """Return packages or installers of what is needed, in its order."""
    if _format(wish) == PACKAGES:
        return tuple(package(host, chip, word, _version(word, wish.row)) for word in need.components), ()
    files = [
        (choose(wish.files, word, chip.word, _version(word, wish.row), host.architecture), word)
        for word in need.components
    ]
    return (), tuple(installer(file, _replaces(word, need, installed), wish.user, wish.group) for file, word in files)


def _had(
    ours: tuple[Package, ...], need: _Need, offered: Mapping[str, Sequence[str]]
) -> tuple[tuple[Package, ...], _Need]:
    """Return the packages at the versions that the repository has, and what is needed without what it never has.

    Whether Huawei's repositories have firmware at all is UNCONFIRMED; its guides take the driver alone from them.
    """
    named = dict(zip(need.components, ours))
    lacking = [word for word in named if word == FIRMWARE and not offered[named[word].name]]
    if lacking and DRIVER in need.components:
        words = f"the repository has no {named[FIRMWARE].name}: firmware is left as it is, unless a .run file is named"
        rest = tuple(word for word in need.components if word != FIRMWARE)
        need, named = replace(need, components=rest, notes=(*need.notes, words)), {word: named[word] for word in rest}
    return tuple(resolved(one, offered[one.name]) for one in named.values()), need


def _repository(host: Host, wish: Wish, need: _Need) -> Repository:
    return repository(host, wish.mirror, wish.key, with_cann=any(word in CANN for word in need.components))


def _hdk(installed: Installed, wish: Wish) -> _Need:
    """Return what of driver and firmware has to be installed. Raises StackError where something has to and must not."""
    row = wish.row
    with_firmware = bool(row.firmware) or any(file.component == FIRMWARE for file in wish.files)
    note = () if with_firmware else (f"release {wish.release} names no firmware: it is left as it is",)
    if not installed.driver or not installed.complete:
        if wish.source == NONE:
            there = "its installation did not come to an end" if installed.driver else "it is not on the host"
            raise StackError(
                f"Huawei's driver is needed, {there}, and cann_source is none; install it, or set cann_source"
            )
        return _Need((DRIVER, FIRMWARE) if with_firmware else (DRIVER,), notes=note)
    why = _not_working(installed, wish)
    differs = wish.asked and not is_same(installed.driver, row.driver)
    if not why and not (differs and wish.policy != RETAIN):
        return _Need(notes=_retained(installed, wish))
    why = why or f"driver {installed.driver} is on the host, cann_driver_version asks for {row.driver}"
    if wish.policy != INSTALL or wish.source == NONE:
        raise StackError(
            f"{why}, and cann_policy is {wish.policy} with cann_source {wish.source}; set cann_policy to install and a "
            "source to bring the host to one row, or choose a release that does with it"
        )
    components = []
    if with_firmware and not (row.firmware and is_same(installed.firmware, row.firmware)):
        components.append(FIRMWARE)
    if not is_same(installed.driver, row.driver):
        components.append(DRIVER)
    if not components:
        raise StackError(f"{why}; release {wish.release} names no firmware that fits: set cann_firmware_version")
    return _Need(tuple(components), upgrade=True, notes=note)


def _retained(installed: Installed, wish: Wish) -> tuple[str, ...]:
    """Return what is not of the row and works all the same."""
    pairs = ((DRIVER, installed.driver, wish.row.driver), (FIRMWARE, installed.firmware, wish.row.firmware))
    return tuple(
        f"{word} {there} is retained, the row of release {wish.release} has {named}"
        for word, there, named in pairs
        if there and named and not is_same(there, named)
    )


def _not_working(installed: Installed, wish: Wish) -> str:
    """Return why driver and firmware on the host do not do, empty where they do."""
    if is_older(installed.driver, wish.row.driver):
        return (
            f"driver {installed.driver} is on the host, release {wish.release} belongs to {wish.row.driver} "
            f"with CANN {wish.row.cann}"
        )
    return mismatch(installed)


def _cann(installed: Installed, wish: Wish) -> tuple[str, ...]:
    """Return the parts of CANN that have to be installed. Raises StackError where they are of another row."""
    if not wish.toolkit:
        return ()
    other = {part: version for part, version in installed.cann.items() if not is_same(version, wish.row.cann)}
    missing = tuple(part for part in CANN if part not in installed.cann or part in other)
    if other and (wish.policy != INSTALL or wish.source == NONE):
        words = ", ".join(f"{part} {version}" for part, version in other.items())
        raise StackError(
            f"CANN on the host is {words}, release {wish.release} belongs to {wish.row.cann}, and cann_policy is "
            f"{wish.policy} with cann_source {wish.source}; set cann_policy to install and a source, or choose a "
            "release that does with it"
        )
    if missing and wish.source == NONE:
        raise StackError(f"CANN {wish.row.cann} lacks {', '.join(missing)}, and cann_source is none")
    return missing


def _may(need: _Need, installed: Installed, wish: Wish) -> None:
    """Raise StackError where something is to be installed that policy, licence or user forbid."""
    if not need.components:
        return
    words = ", ".join(f"{component} {_version(component, wish.row)}".strip() for component in need.components)
    if wish.policy == HALT:
        raise StackError(f"cann_policy is halt, and these are to be installed: {words}")
    if not wish.licence_accepted:
        raise StackError(
            f"{words} would be installed, and Huawei's licence for them is not accepted; read it where the files are "
            "had (hiascend.com, or the .run file with --check), then set cann_licence_accepted to true"
        )
    if installed.group and installed.group != wish.group:
        raise StackError(
            f"user {wish.user} is in group {installed.group}, Huawei's installer wants {wish.group}; correct it with "
            f"'usermod --gid {wish.group} {wish.user}', or set cann_group"
        )


def _replaces(component: str, need: _Need, installed: Installed) -> bool:
    """Return whether a component takes the place of another version of it."""
    return need.upgrade and (component != FIRMWARE or bool(installed.firmware))


def _check_origin(host: Host, need: _Need, wish: Wish) -> None:
    """Raise StackError where packages would replace what a .run file has installed, or the other way round."""
    packaged = sorted(hdk_packages(host))
    if not need.upgrade or bool(packaged) == (_format(wish) == PACKAGES):
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


def _version(component: str, row: Row) -> str:
    """Return the version of a component in a row of the matrix."""
    return {DRIVER: row.driver, FIRMWARE: row.firmware}.get(component, row.cann)


def _owner(installed: Installed, wish: Wish, need: _Need) -> tuple[tuple[User, ...], tuple[Group, ...]]:
    """Return user and group, which have to be there before an installer looks for them."""
    if not need.components or installed.group:
        return (), ()
    user = User(wish.user, wish.group, (), f"/home/{wish.user}", "/bin/bash")
    return (user,), () if installed.has_group else (Group(wish.group, system=False),)


def _finish(host: Host, is_new: bool) -> tuple[Command, ...]:
    """Return what builds the driver's modules for kernels that have none; an installer does it for the running one."""
    ours = [build for build in host.dkms if build.module.startswith(DKMS)]
    built = {host.kernel} if is_new else {build.kernel for build in ours if build.state == "installed"}
    return tuple(
        Command(("dkms", "autoinstall", "-k", kernel), f"kernel {kernel} has no module of the driver")
        for kernel in host.kernels
        if (is_new or ours) and kernel not in built
    )


def _held(host: Host, packages: tuple[Package, ...]) -> tuple[str, ...]:
    return tuple(sorted({name for name in (*host.packages, *(one.name for one in packages)) if is_ours(name)}))


def _reboot(host: Host, installed: Installed, need: _Need, wish: Wish) -> tuple[str, ...]:
    """Return why a reboot is needed, now or once what is due has taken the place of what runs.

    UNCONFIRMED: that npu-smi says the firmware that runs, by the number that version.info has.
    """
    there = {DRIVER: installed.driver, FIRMWARE: installed.firmware}
    running = {DRIVER: installed.running, FIRMWARE: installed.running_firmware}
    if DRIVER in need.components or FIRMWARE in need.components:
        due = [word for word in need.components if need.upgrade and running.get(word)]
        return tuple(
            f"{word} {running[word]} runs, {_version(word, wish.row) or 'another'} takes its place" for word in due
        )
    if KIND.module not in host.modules:
        return (f"driver {installed.driver} is installed and not loaded",)
    return tuple(
        f"{word} {running[word]} runs, {version} is installed"
        for word, version in there.items()
        if version and running[word] and not is_same(version, running[word])
    )


def _notes(
    host: Host, hardware: Hardware, installed: Installed, wish: Wish, ours: tuple[Package, ...]
) -> tuple[str, ...]:
    reasons = {npu.model: npu.unsupported for npu in hardware.npus if npu.unsupported}
    notes = [f"nothing can be served on {model}: {reason}" for model, reason in sorted(reasons.items())]
    other = installed.cann.get("toolkit", "")
    if not wish.toolkit and other and not is_same(other, wish.row.cann):
        notes.append(
            f"CANN {other} is on the host, release {wish.release} has {wish.row.cann}: containers bring their own"
        )
    if host.manager == APT and any("ascend-cann" in one.name for one in ours):
        notes.append("packages of CANN may ask for the licence at a terminal; name .run files if they fail")
    return tuple(notes)
