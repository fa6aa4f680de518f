# SPDX-License-Identifier: GPL-3.0-or-later
"""Input and result of planning a container engine: the request and the plan."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Mapping, Sequence

from ...module_utils.common.run_file import Installer


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
class PlanPart:
    """Steps that follow from one decision. The tasks of the role execute them in the order of the fields.

    Each of ``repositories`` has ``name``, ``path``, ``content`` and ``key`` (``path``, ``url``, ``fingerprints``);
    ``enable`` are repositories that stay disabled between runs. ``installers`` are a vendor's files to run. ``toolkit``
    and ``packages`` are to be installed; ``remove`` conflicts with them (``release``: those of it that are held);
    ``hold`` is kept from upgrades. Each of ``files`` has ``path``, ``content`` and ``mode``. Each of ``settings_files``
    is a file of docker's that may hold credentials and is merged on the host: ``path``, ``settings`` and ``validate``
    (a command that checks the file, or empty). ``restart`` and ``reload`` are reasons; ``notes`` are for a person.
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
    settings_files: tuple[Mapping[str, Any], ...] = ()
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
    """Everything that the tasks of the role do for a host's container engine; empty if there is nothing to do.

    ``unit`` is the engine's systemd unit, empty for podman, which has no daemon. ``recover`` is true if an interrupted
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
        files = self.files or self.settings_files or self.absent
        parts = (self.repositories, self.installers, self.hold, files, self.units, self.commands)
        return self.installs or any(parts) or bool(self.restart or self.reload)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan for the tasks: plain data of dictionaries and lists."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain
