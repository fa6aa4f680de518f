# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Input and result of planning a container engine: the request, the host's state and the plan."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Mapping, Sequence

from ansible_collections.baremetal.inference.plugins.module_utils.common.run_file import Installer

SOURCES = ("vendor", "distro", "mirror", "none")
POLICIES = ("retain", "install", "halt")
TOOLKITS = ("auto", "vendor", "none")


class RuntimePlanError(ValueError):
    """The request cannot be met on this host; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class Request:
    """The role's variables without their prefix. ``stack`` is the stack of the host's accelerators.

    ``ascend_file`` holds ``url`` and ``sha256`` of the Ascend Docker Runtime's installer, or is empty.
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
    """A container engine found on a host. ``version`` is empty where the engine does not answer (``why``).

    ``daemon`` is false where only docker's command is installed, for daemons on other hosts. The rest comes from the
    running engine, not from its files: names of running ``containers``, ``root`` of its storage, ``mirrors`` of
    docker.io, ``insecure`` registries, directories of CDI specifications and names of its ``runtimes``. ``flags`` are
    the options on dockerd's command line.
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
    """The state of a host. ``files`` holds the text of existing files by path; ``sources`` the package sources.

    ``keys`` holds fingerprints of keyring files by path. ``unfinished`` maps packages whose installation was
    interrupted to their dpkg status, ``unlinked`` are device nodes that systemd cannot name, ``active`` the units that
    run, ``drivers`` the stacks whose driver is loaded, ``ascend`` the version of the Ascend Docker Runtime, empty where
    it is missing or incomplete.
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
        """Return the names of all running containers of all engines."""
        return [name for engine in self.engines.values() for name in engine.containers]


@dataclass(frozen=True)
class PlanPart:
    """Steps that one decision asks for. The tasks of the role carry them out in the order of the fields.

    Each of ``repositories`` has ``name``, ``path``, ``content`` and ``key`` (``path``, ``url``, ``fingerprints``);
    ``enable`` are repositories that stay disabled between runs. ``installers`` are a vendor's files to run. ``toolkit``
    and ``packages`` are to be installed; ``remove`` conflicts with them (``release``: those of it that are held);
    ``hold`` is kept from upgrades. Each of ``files`` has ``path``, ``content``, ``mode`` and ``validate`` (a command
    that checks it, or empty). ``restart`` and ``reload`` are reasons; ``notes`` are for a person.
    """

    repositories: tuple[Mapping[str, Any], ...] = ()
    enable: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    installers: tuple[Installer, ...] = ()
    toolkit: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    files: tuple[Mapping[str, str], ...] = ()
    absent: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    restart: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: PlanPart) -> PlanPart:
        """Return the steps of both, those of this part first."""
        return PlanPart(**{name: getattr(self, name) + getattr(other, name) for name in _STEPS})


_STEPS = tuple(field.name for field in fields(PlanPart))


@dataclass(frozen=True)
class EnginePlan(PlanPart):
    """Everything that the tasks of the role do for a host's container engine; empty where nothing is to be done.

    ``unit`` is the engine's systemd unit, empty for podman, which has no daemon. ``recover`` tells that an interrupted
    installation must be completed first; each of ``mend`` is a command for it (``argv``), with ``may_fail`` where the
    next command repairs what this one cannot.
    """

    engine: str = ""
    unit: str = ""
    recover: bool = False
    mend: tuple[Mapping[str, Any], ...] = ()

    @property
    def installs(self) -> bool:
        """Return whether packages change, after which the engine's state must be read again."""
        return bool(self.recover or self.remove or self.toolkit or self.packages)

    @property
    def changes(self) -> bool:
        """Return whether anything would be done."""
        parts = (self.repositories, self.installers, self.hold, self.files, self.absent, self.units, self.commands)
        return self.installs or any(parts) or bool(self.restart or self.reload)
