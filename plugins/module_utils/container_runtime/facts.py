# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host's container engines: the data that the module container_runtime_state returns."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, Sequence

from ..containers.engine import Found


class RuntimePlanError(ValueError):
    """The request cannot be met on this host; the message is the whole sentence for the user."""


@dataclass(frozen=True)
class EngineState(Found):
    """A container engine of a host, with its settings.

    ``daemon`` is false where only docker's command is installed, for daemons on other hosts. The rest comes from the
    running engine, not from its files: names of running ``containers``, ``root`` of its storage, ``mirrors`` of
    docker.io, ``insecure`` registries and names of its ``runtimes``. ``flags`` are the names of the options on
    dockerd's command line; their values may be credentials.
    """

    daemon: bool = True
    containers: Sequence[str] = ()
    root: str = ""
    mirrors: Sequence[str] = ()
    insecure: Sequence[str] = ()
    cgroup_driver: str = ""
    runtimes: Sequence[str] = ()
    flags: Sequence[str] = ()


@dataclass(frozen=True)
class HostState:
    """The state of a host, without credentials.

    ``files`` holds the text of existing files by path, empty where only its existence matters; ``sources`` the package
    sources. ``daemon_json`` holds the keys of docker's daemon.json that the role sets, ``daemon_json_error`` why docker
    cannot read that file. ``keys`` holds fingerprints of keyring files by path. ``unfinished`` maps packages whose
    installation was interrupted to their dpkg status, ``unlinked`` are device nodes that systemd cannot name,
    ``active`` the units that run, ``drivers`` the stacks whose driver is loaded, ``ascend`` the version of the Ascend
    Docker Runtime, empty where it is missing or incomplete.
    """

    architecture: str = "x86_64"
    engines: Mapping[str, EngineState] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    unfinished: Mapping[str, str] = field(default_factory=dict)
    held: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    daemon_json: Mapping[str, Any] = field(default_factory=dict)
    daemon_json_error: str = ""
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

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as plain data, JSON-serialisable."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HostState:
        """Return the facts that as_dict made plain."""
        engines = {name: EngineState(**engine) for name, engine in data["engines"].items()}
        return cls(**{**data, "engines": engines})
