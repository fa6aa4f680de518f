# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of AMD's stack on a host, besides the state common to all stacks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Mapping

STACK = "rocm"
# The driver's modules, dependent modules first: AMD's own amdgpu replaces most of the kernel's related modules.
MODULES = (
    "amdgpu",
    "amdxcp",
    "amddrm_ttm_helper",
    "amddrm_exec",
    "amddrm_buddy",
    "amdttm",
    "amd_sched",
    "amdkcl",
)
# Members of these groups have access to the chips.
GROUPS = ("render", "video")


@dataclass(frozen=True)
class Blacklist:
    """A line that prevents amdgpu from loading; ``line`` is 0 for the kernel's command line."""

    path: str
    line: int
    text: str

    @property
    def where(self) -> str:
        """The location in words for messages."""
        return f"{self.path} line {self.line}" if self.line else "the kernel's command line"


@dataclass(frozen=True)
class RocmHostState:
    """The state of AMD's stack on a host.

    ``driven`` are the PCI addresses of chips that the driver has devices for. ``has_module``: whether a module is on
    disk for the running kernel; ``disk`` is its version (empty for the kernel's own); ``is_stale``: whether another is
    loaded. ``rocm`` is the version of the user space in /opt/rocm, empty for none. ``blacklisting`` has the contents of
    the files in ``blacklists``, ``grub`` that of the plan's own file for GRUB (None if missing), ``sources`` those of
    apt's files that name AMD's repositories. ``numa_balancing`` is the kernel's setting, empty where it has none;
    ``cpu_vendor`` is AuthenticAMD or GenuineIntel.
    """

    driven: tuple[str, ...] = ()
    has_module: bool = False
    disk: str = ""
    is_stale: bool = False
    rocm: str = ""
    blacklists: tuple[Blacklist, ...] = ()
    blacklisting: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    has_grub: bool = False
    grub: str | None = None
    command_line: str = ""
    cpu_vendor: str = ""
    numa_balancing: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as plain data, JSON-serialisable."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RocmHostState:
        """Return the state from the result of as_dict."""
        blacklists = tuple(Blacklist(**entry) for entry in data["blacklists"])
        return cls(**{**data, "driven": tuple(data["driven"]), "blacklists": blacklists})
