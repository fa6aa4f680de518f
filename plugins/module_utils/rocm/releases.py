# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of ROCm and of AMD's driver that belong together, and the chips and systems that each supports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..common.versions import at_least, numbers_of
from ..vendor_stack.model import RHEL_LIKE, Host, StackError

# The layouts of the user space repositories.
CLASSIC = "classic"
THEROCK = "therock"
CORE = "core"

ARCHITECTURE = "x86_64"


@dataclass(frozen=True)
class System:
    """An operating system in AMD's names: ``tag`` in the newer repositories, ``codename`` in Ubuntu's form.

    Debian uses the packages of the Ubuntu of its time. For RHEL ``tag`` is that of the major version.
    """

    tag: str
    codename: str = ""


SYSTEMS = {
    ("debian", "12"): System("debian12", "jammy"),
    ("debian", "13"): System("debian13", "noble"),
    ("ubuntu", "22.04"): System("ubuntu2204", "jammy"),
    ("ubuntu", "24.04"): System("ubuntu2404", "noble"),
    ("ubuntu", "26.04"): System("ubuntu2604", "resolute"),
    ("rhel", "9"): System("rhel9"),
    ("rhel", "10"): System("rhel10"),
}
TITLES = {
    "debian12": "Debian 12",
    "debian13": "Debian 13",
    "ubuntu2204": "Ubuntu 22.04",
    "ubuntu2404": "Ubuntu 24.04",
    "ubuntu2604": "Ubuntu 26.04",
    "rhel9": "RHEL, AlmaLinux, Rocky Linux, CentOS Stream and Oracle Linux 9",
    "rhel10": "RHEL and its clones 10",
}
_FIRST = ("debian12", "ubuntu2204", "ubuntu2404", "rhel9")
_SECOND = ("debian12", "debian13", "ubuntu2204", "ubuntu2404", "rhel9", "rhel10")
_ALL = tuple(TITLES)
# Minor versions of RHEL with a directory in the driver's repository, newest first, by AMD's own pages.
_EL_70 = ("9.6", "9.4")
_EL_72 = ("10.1", "10", "9.7", "9.6", "9.4")
_EL_714 = ("10.2", "10", "9.8", "9.6", "9.4")


@dataclass(frozen=True)
class Release:
    """One release of ROCm with the driver of its time.

    ``driver`` is the driver's own release, which names its repository; ``module`` is the prefix of its kernel module's
    versions (empty where unknown); ``oldest`` is the oldest module that this ROCm supports; ``systems`` are tags;
    ``el`` are the directories of RHEL in the driver's repository.
    """

    rocm: str
    driver: str
    module: str
    oldest: str
    systems: tuple[str, ...]
    el: tuple[str, ...]

    @property
    def layout(self) -> str:
        """The layout of the user space repository."""
        return CORE if at_least(self.rocm, "10") else THEROCK if at_least(self.rocm, "7.13") else CLASSIC

    @property
    def short(self) -> str:
        """The first two numbers of ROCm's version, as in the names of the newer packages: 10.0 for 10.0.0."""
        return ".".join(self.rocm.split(".")[:2])

    @property
    def code(self) -> str:
        """The driver's release in the versions of its Debian packages: 31500000 for 31.50."""
        return code_of(self.driver)


# UNCONFIRMED: every `oldest`, by AMD's rule that driver and user space within a year of each other work together; and
# the systems and directories of 10.0.0 and 10.1.0, copied from 7.14.0. The repository of driver 30.30.2 was announced
# with ROCm 7.2.2 and is empty, so 7.2.2 uses the next one. Modules of 31.20 to 31.40 were seen as 6.19, the module of
# 31.60 as the package 1:7.1.9.31600000-2403767.26.04.
_KNOWN = (
    Release("6.4.0", "6.4", "6.12.12", "6.8.5", _FIRST, ("9.5", "9.4")),
    Release("6.4.1", "6.4.1", "6.12.12", "6.8.5", _FIRST, ("9.6", "9.5", "9.4")),
    Release("6.4.2", "6.4.2", "6.12.12", "6.8.5", _FIRST, ("9.6", "9.4")),
    Release("6.4.3", "6.4.3", "6.12.12", "6.8.5", _FIRST, ("9.6", "9.4")),
    Release("6.4.4", "6.4.4", "6.12.12", "6.8.5", _FIRST, ("9.6", "9.4")),
    Release("7.0.0", "30.10", "6.14.14", "6.10.5", _FIRST, _EL_70),
    Release("7.0.1", "30.10.1", "6.14.14", "6.10.5", _FIRST, _EL_70),
    Release("7.0.2", "30.10.2", "6.14.14", "6.10.5", _SECOND, ("10", *_EL_70)),
    Release("7.1.0", "30.20", "6.16.6", "6.12.12", _SECOND, ("10.1", "10", "9.7", *_EL_70)),
    Release("7.1.1", "30.20.1", "6.16.6", "6.12.12", _SECOND, ("10.1", "10", "9.7", *_EL_70)),
    Release("7.2.0", "30.30", "6.16.13", "6.12.12", _SECOND, _EL_72),
    Release("7.2.1", "30.30.1", "6.16.13", "6.12.12", _SECOND, _EL_72),
    Release("7.2.2", "30.30.3", "6.16.13", "6.12.12", _SECOND, _EL_72),
    Release("7.2.3", "30.30.3", "6.16.13", "6.12.12", _SECOND, _EL_72),
    Release("7.2.4", "30.30.4", "6.16.13", "6.12.12", _SECOND, _EL_72),
    Release("7.13.0", "31.30", "6.19", "6.14.14", _ALL, _EL_72),
    Release("7.14.0", "31.40.1", "6.19", "6.14.14", _ALL, _EL_714),
    Release("10.0.0", "31.50", "7.1.3", "6.14.14", _ALL, _EL_714),
    Release("10.1.0", "31.60", "7.1.9", "6.14.14", _ALL, _EL_714),
)
RELEASES = {release.rocm: release for release in _KNOWN}


@dataclass(frozen=True)
class Need:
    """The minimum for a generation of chips: ROCm, the driver's module, a kernel whose own driver supports it."""

    rocm: str
    module: str
    kernel: str


# The first two columns of gfx950 and gfx115x are the vendor's (MI350 from ROCm 7.0, Ryzen AI from 7.0.2).
# UNCONFIRMED: gfx120x, every kernel, and modules (by the driver of ROCm's time). Chips that are not listed are older
# than all of these.
NEEDS = {
    "gfx950": Need("7.0.0", "6.14.14", "6.14"),
    "gfx1150": Need("7.0.2", "6.14.14", "6.11"),
    "gfx1151": Need("7.0.2", "6.14.14", "6.14"),
    "gfx1200": Need("6.4.1", "6.12.12", "6.12"),
    "gfx1201": Need("6.4.1", "6.12.12", "6.12"),
}


def release_of(rocm: str, driver: str = "") -> Release:
    """Return the known release of ROCm (10.0.0, or 7.2 for 7.2.0).

    ``driver`` is the driver in the release file; it overrides the table. Raises StackError where both lack the release.
    """
    full = f"{rocm}.0" if re.fullmatch(r"\d+\.\d+", rocm) else rocm
    known = RELEASES.get(full)
    if known is not None and driver in ("", known.driver):
        return known
    if driver:
        same = [release for release in _KNOWN if release.driver == driver]
        module = same[0].module if same else ""
        older = [release for release in _KNOWN if at_least(full, release.rocm)] or [_KNOWN[0]]
        return Release(full, driver, module, older[-1].oldest, older[-1].systems, older[-1].el)
    raise StackError(
        f"the driver of ROCm {rocm} is not known; known releases are {', '.join(RELEASES)}; correct "
        "rocm_version, or name the driver as amdgpu in the release file"
    )


def code_of(driver: str) -> str:
    """Return a driver's release in the form of its Debian packages' versions.

    Releases with ROCm's number have five digits (60404), the others eight (30200100).
    """
    numbers = [*numbers_of(driver), 0, 0, 0]
    return f"{numbers[0]}{numbers[1]:02d}{numbers[2]:02d}{'00' if numbers[0] >= 30 else ''}"


def system_of(host: Host, release: Release) -> System:
    """Return an operating system in AMD's names. Raises StackError where the release does not support it."""
    like = host.distribution in RHEL_LIKE
    system = SYSTEMS.get(("rhel", host.major) if like else (host.distribution, host.version))
    if system is None or system.tag not in release.systems:
        supported = ", ".join(TITLES[tag] for tag in release.systems)
        raise StackError(
            f"{host.title} is not supported by AMD's driver {release.driver} (ROCm {release.rocm}); supported are "
            f"{supported}" + ("; choose a newer rocm_version" if system else "")
        )
    if host.architecture != ARCHITECTURE:
        raise StackError(f"AMD has no driver for {host.architecture}; expected {ARCHITECTURE}")
    return system


def el_directory(host: Host, release: Release) -> str:
    """Return the driver's directory for a RHEL: of its version, else the newest that is not newer than it.

    A system without a minor version (CentOS Stream) uses the newest one. The directory of 10.0 is named 10.
    """
    asked = "10" if host.version == "10.0" else host.version
    of_major = [name for name in release.el if name.split(".")[0] == host.major]
    if not of_major:
        raise StackError(
            f"AMD's driver {release.driver} has no repository for {host.title}; choose another rocm_version"
        )
    if host.version == host.major:
        return of_major[0]
    if asked in of_major:
        return asked
    older = [name for name in of_major if at_least(host.version, name)]
    return older[0] if older else of_major[-1]
