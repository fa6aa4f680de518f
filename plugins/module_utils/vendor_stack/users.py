# SPDX-License-Identifier: GPL-3.0-or-later
"""The units and processes on a host's chips, and the order in which units are stopped before a driver is replaced."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Sequence

# Instances of the role vllm, whatever they run in.
SERVING = "vllm@*.service"
# Exporters, and the vendors' own daemons; a unit that needs another one comes before it.
EXPORTERS = (
    "dcgm-exporter.service",
    "nvidia-dcgm.service",
    "amd-metrics-exporter.service",
    "gpuagent.service",
    "npu-exporter.service",  # UNCONFIRMED: the name of its unit
)
DAEMONS = ("nvidia-imex.service", "nvidia-fabricmanager.service", "nvidia-persistenced.service")

_SERVING = re.compile(r"vllm@.+\.service\Z")
# The unit of a container in an engine; its instance shows only when that is stopped.
_CONTAINER = re.compile(r"(docker|libpod|cri-containerd)-[0-9a-f]+\.scope\Z")


@dataclass(frozen=True)
class Holder:
    """A process that has a chip's device open; ``unit`` is its systemd unit, empty where it has none."""

    pid: int
    command: str
    unit: str
    path: str

    def __str__(self) -> str:
        unit = f" of {self.unit}" if self.unit else ""
        return f"process {self.pid} ({self.command}{unit}) has {self.path} open"


def units_to_stop(active: Sequence[str]) -> tuple[str, ...]:
    """Return the running units to stop for a new driver, in order. They are started again in reverse order."""
    serving = sorted(unit for unit in active if _SERVING.match(unit))
    return (*serving, *(unit for unit in (*EXPORTERS, *DAEMONS) if unit in active))


def foreign_holders(holders: Sequence[Holder], stopping: Sequence[str]) -> list[Holder]:
    """Return the processes on the chips that the role must not stop.

    While instances run, containers count as theirs; when the instances are stopped, no container may remain.
    """
    serving = any(_SERVING.match(unit) for unit in stopping)
    return [
        holder for holder in holders if holder.unit not in stopping and not (serving and _CONTAINER.match(holder.unit))
    ]
