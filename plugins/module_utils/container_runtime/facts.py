# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host and wanted of its container engine, as the planning of the role container_runtime has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.run_file import Installer

SOURCES = ("vendor", "distro", "mirror", "none")
POLICIES = ("retain", "install", "halt")
TOOLKITS = ("auto", "vendor", "none")


class RuntimePlanError(ValueError):
    """What is wanted of the engine cannot be had on this host; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Wish:
    """The variables of the role, without its prefix. ``stack`` is that of the host's accelerators.

    ``ascend_file`` has ``url`` and ``sha256`` of the installer of the Ascend Docker Runtime, or nothing.
    """

    engine: str = "docker"
    source: str = "vendor"
    version: str = ""
    policy: str = "retain"
    hold: bool = True
    toolkit: str = "auto"
    stack: str = "cpu"
    ascend_file: Mapping[str, Any] = field(default_factory=dict)
    ascend_licence_accepted: bool = False
    mirror_url: str = ""
    mirror_fingerprints: Sequence[str] = ()
    storage: str = ""
    registry_mirrors: Sequence[str] = ()
    insecure_registries: Sequence[str] = ()
    restart_allowed: bool = False


@dataclass(frozen=True)
class EngineState:
    """An engine that is on a host. ``version`` is empty where it does not answer (``why``).

    ``daemon`` is false where there is docker's command only, which is for daemons elsewhere. The rest is what the
    running engine says of itself, not what its files say: names of running ``containers``, ``root`` of its storage,
    ``mirrors`` of docker.io, ``insecure`` registries, directories of CDI specifications and the names of its
    ``runtimes``. ``flags`` are the options on docker's command line.
    """

    name: str
    command: str = ""
    daemon: bool = True
    version: str = ""
    why: str = ""
    containers: Sequence[str] = ()
    root: str = ""
    mirrors: Sequence[str] = ()
    insecure: Sequence[str] = ()
    cgroup_driver: str = ""
    cdi_dirs: Sequence[str] = ()
    runtimes: Sequence[str] = ()
    flags: Sequence[str] = ()
    cgroup_v2: bool = True
    generator: bool = True


@dataclass(frozen=True)
class HostState:
    """A host as it is. ``files`` holds text by path, of those that are there; ``sources`` the package sources.

    ``keys`` holds fingerprints of keyring files by path. ``unfinished`` are packages whose installation was cut off,
    with what dpkg says of them, ``unlinked`` device nodes that systemd cannot name, ``active`` the units that run,
    ``drivers`` the stacks whose driver is loaded, ``ascend`` the version of the Ascend Docker Runtime, empty where it
    is not whole.
    """

    architecture: str = "x86_64"
    engines: Mapping[str, EngineState] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    unfinished: Mapping[str, str] = field(default_factory=dict)
    held: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    active: Sequence[str] = ()
    drivers: Sequence[str] = ()
    unlinked: Sequence[str] = ()
    cdi_kinds: Sequence[str] = ()
    apparmor: bool = False
    ascend: str = ""

    @property
    def running(self) -> list[str]:
        """Return the names of all running containers, whatever runs them."""
        return [name for engine in self.engines.values() for name in engine.containers]


@dataclass
class Plan:
    """What the tasks of the role carry out, in this order; empty where there is nothing to do.

    ``recover`` says that an installation was cut off and has to be ended first, each of ``mend`` how (``argv``), and
    whether the next can do what it cannot (``may_fail``). Each of ``repositories`` has ``name``,
    ``path``, ``content`` and ``key`` (``path``, ``url``, ``fingerprints``); ``enable`` are those that are off between
    runs. ``installers`` are files of a vendor's that are run. ``toolkit`` and ``packages`` are what the packager is
    asked for, ``remove`` cannot stay beside them (``release`` are those of them that are held), ``hold`` is kept from
    upgrades. Each of ``files`` has ``path``, ``content``, ``mode`` and ``validate`` (a command that judges it, or
    nothing). ``restart`` and ``reload`` are the reasons for it.
    """

    engine: str
    unit: str = ""
    recover: bool = False
    mend: list[dict[str, Any]] = field(default_factory=list)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    enable: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    release: list[str] = field(default_factory=list)
    installers: list[Installer] = field(default_factory=list)
    toolkit: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    files: list[dict[str, str]] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    reload: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def installs(self) -> bool:
        """Return whether packages change, after which the engine has to be looked at again."""
        return bool(self.recover or self.remove or self.toolkit or self.packages)

    @property
    def changes(self) -> bool:
        """Return whether anything would be done."""
        parts = (self.repositories, self.installers, self.hold, self.files, self.absent, self.units, self.commands)
        return self.installs or any(parts) or bool(self.restart or self.reload)
