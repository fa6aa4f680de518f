# SPDX-License-Identifier: GPL-3.0-or-later
"""The data that the vendor stacks share: facts about a host, the plan for it, sources and policies."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Mapping

from ..common.run_file import Installer

# What a policy does with an installed driver.
RETAIN = "retain"
INSTALL = "install"
HALT = "halt"

# Where packages come from.
VENDOR = "vendor"
DISTRO = "distro"
MIRROR = "mirror"
NONE = "none"

# Clones, by their names in /etc/os-release: they use RHEL's packages.
RHEL_LIKE = ("rhel", "almalinux", "rocky", "centos", "ol")
# Systems with dnf that have packages of their own.
OPENEULER_LIKE = ("openeuler", "kylin", "uos", "bclinux", "ctyunos", "euleros")
APT = "apt"
DNF = "dnf"


class StackError(ValueError):
    """A host cannot get what was requested; the message is the complete sentence for the user."""


@dataclass(frozen=True)
class Module:
    """A loaded kernel module, from /sys/module; None for missing values."""

    version: str | None = None
    srcversion: str | None = None


@dataclass(frozen=True)
class DkmsBuild:
    """One line of ``dkms status``: ``state`` is added, built or installed; ``kernel`` is empty for added."""

    module: str
    version: str
    kernel: str
    state: str


@dataclass(frozen=True)
class Host:
    """The state of a host.

    ``distribution`` and ``version`` are ID and VERSION_ID of /etc/os-release (ubuntu, 24.04), ``architecture`` is that
    of uname. ``next_kernel`` is the release that boots next. ``secure_boot`` and
    ``signing_key_enrolled`` are None where they cannot be read. ``packages`` are those of kernels, drivers and their
    dependencies, with their full versions, ``holds`` the names of those that no upgrade touches. ``groups`` are the
    existing groups of the stack with their members, ``users`` its existing users with the names of their groups.
    ``unfinished`` are packages whose installation was interrupted.
    """

    distribution: str
    version: str
    codename: str
    architecture: str
    kernel: str
    next_kernel: str
    secure_boot: bool | None = None
    signing_key_enrolled: bool | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, Module] = field(default_factory=dict)
    dkms: tuple[DkmsBuild, ...] = ()
    holds: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()

    @property
    def major(self) -> str:
        """The first number of the version: 24 of Ubuntu 24.04."""
        return self.version.split(".")[0]

    @property
    def manager(self) -> str:
        """The package manager, apt or dnf."""
        return manager_of(self.distribution)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The running kernel and, where it is another, the one that boots next."""
        return tuple(dict.fromkeys((self.kernel, self.next_kernel)))

    @property
    def title(self) -> str:
        """The operating system in words for messages."""
        return f"{self.distribution} {self.version}"

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as plain data, JSON-serialisable."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Host:
        """Return the facts from the result of as_dict."""
        modules = {name: Module(**module) for name, module in data["modules"].items()}
        dkms = tuple(DkmsBuild(**build) for build in data["dkms"])
        return cls(
            **{
                **data,
                "modules": modules,
                "dkms": dkms,
                "holds": tuple(data["holds"]),
                "unfinished": tuple(data["unfinished"]),
            }
        )


@dataclass(frozen=True)
class Key:
    """A signing key: where it is downloaded from, the file that keeps it, the end of its fingerprint.

    A ``url`` that ends in .deb is that of a package that contains the file.
    """

    url: str
    path: str
    id: str


@dataclass(frozen=True)
class Repository:
    """A repository with its key. ``suites`` and ``components`` are apt's; a flat one has the suite ``/``."""

    name: str
    url: str
    key: Key
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()

    def file(self, manager: str) -> ConfigFile:
        """Return the file that names the repository to a package manager; unsigned packages are refused."""
        if manager == DNF:
            signed = f"gpgcheck=1\nrepo_gpgcheck=0\ngpgkey=file://{self.key.path}\n"
            text = f"[{self.name}]\nname={self.name}\nbaseurl={self.url}\nenabled=1\n{signed}"
            return ConfigFile(f"/etc/yum.repos.d/{self.name}.repo", text)
        words = {"Types": "deb", "URIs": self.url, "Suites": " ".join(self.suites)}
        if self.components:
            words["Components"] = " ".join(self.components)
        text = "".join(f"{key}: {value}\n" for key, value in {**words, "Signed-By": self.key.path}.items())
        return ConfigFile(f"/etc/apt/sources.list.d/{self.name}.sources", text)


@dataclass(frozen=True)
class Package:
    """A package to install; ``version`` is exact or ends in ``*``, None for any version.

    A package that is ``ahead`` decides on the versions of others, so it is installed before them.
    """

    name: str
    version: str | None = None
    ahead: bool = False

    def spec(self, manager: str) -> str:
        """Return the package as an argument of the package manager."""
        if self.version is None:
            return self.name
        return f"{self.name}{'-' if manager == DNF else '='}{self.version}"


@dataclass(frozen=True)
class ConfigFile:
    """A file that the role writes completely; ``restarts`` is the service that reads it only at its start, if any.

    A file that is ``in_initramfs`` is read before the root file system is mounted, so the initramfs is rebuilt.
    """

    path: str
    content: str
    restarts: str = ""
    in_initramfs: bool = False


@dataclass(frozen=True)
class Command:
    """A command, and the reason to run it."""

    argv: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Group:
    """A group of the host; ``gid`` None for the next free one."""

    name: str
    gid: int | None = None
    system: bool = True


@dataclass(frozen=True)
class User:
    """A user of the host, with its primary group and its further groups."""

    name: str
    group: str
    groups: tuple[str, ...] = ()
    home: str = ""
    shell: str = ""


@dataclass(frozen=True)
class DriverPlan:
    """The missing steps on a host, in the order of the fields.

    ``replaces`` is the version of the loaded driver that another one replaces: users of the chips are stopped first, in
    order, and started again. ``unload`` are its modules, dependent modules first.
    ``remove_first`` are packages in the way of the repositories, ``remove`` those that nothing needs after the
    installation, so that a host is never without a driver. ``prepare`` runs between repositories and packages,
    ``finish`` after the files. ``hold`` are packages that no upgrade may replace. ``reboot`` are the reasons for a
    reboot, empty without one. ``in_order``: whether packages are installed one after the other. ``notes`` are for
    users. ``pins`` are installed packages that decide on versions, as those that are ahead will.
    """

    groups: tuple[Group, ...] = ()
    users: tuple[User, ...] = ()
    replaces: str = ""
    unload: tuple[str, ...] = ()
    remove_first: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    prepare: tuple[Command, ...] = ()
    packages: tuple[Package, ...] = ()
    in_order: bool = False
    installers: tuple[Installer, ...] = ()
    remove: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    files: tuple[ConfigFile, ...] = ()
    finish: tuple[Command, ...] = ()
    services: tuple[str, ...] = ()
    reboot: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()


def manager_of(distribution: str) -> str:
    """Return the package manager of a distribution, by its ID in /etc/os-release; apt where none is known."""
    return DNF if distribution in (*RHEL_LIKE, *OPENEULER_LIKE) else APT


def branch_of(version: str) -> int:
    """Return the driver branch of a version, its first number. Raises StackError where there is none."""
    found = re.match(r"[0-9]{1,18}", version)
    if found is None:
        raise StackError(f"driver version {version!r} does not begin with a number; expected a form like 580.95.05")
    return int(found.group())
