# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's chips of a host: the kernel modules that support them, and whether they share a fabric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..accelerator.recognition import Catalogue
from ..common.versions import at_least, newest
from ..vendor_stack.chips import Chip, chips_of
from ..vendor_stack.model import StackError, branch_of

OPEN = "open"
PROPRIETARY = "proprietary"

STACK = "cuda"
FIRST_OPEN = 560

NVLINK5_BOARD = 8
NVSWITCH = "nvswitch"
NVLINK5 = "nvlink5"
IMEX = "imex"


@dataclass(frozen=True)
class CudaHardware:
    """NVIDIA's chips of a host, the addresses of its NVSwitches, and whether it has a management port of NVLink 5."""

    gpus: tuple[Chip, ...]
    switches: tuple[str, ...] = ()
    management_ports: bool = False

    @property
    def fabric(self) -> str:
        """NVSWITCH, NVLINK5, or empty where the chips need no fabric manager."""
        if self.switches:
            return NVSWITCH
        boards = sum(gpu.driver.get("fabric") == NVLINK5 for gpu in self.gpus) == NVLINK5_BOARD
        return NVLINK5 if self.management_ports or boards else ""


def hardware_of(detected: Mapping[str, Any], catalogue: Catalogue, management_ports: bool) -> CudaHardware:
    """Return NVIDIA's part of the fact ``accelerator_detected``."""
    gpus = chips_of(STACK, detected, catalogue)
    return CudaHardware(gpus, tuple(switch["address"] for switch in detected["switches"]), management_ports)


def flavour_of(gpus: Sequence[Chip], branch: int) -> tuple[str, tuple[str, ...]]:
    """Return the kernel modules that the chips need, and notes. Raises StackError where none supports all of them."""
    legacy = _names(gpu for gpu in gpus if gpu.driver.get("modules") == PROPRIETARY)
    strict = _names(gpu for gpu in gpus if gpu.driver.get("modules") == OPEN)
    both = _names(gpu for gpu in gpus if "modules" not in gpu.driver)
    if legacy and strict:
        raise StackError(
            f"{', '.join(legacy)} needs the proprietary kernel modules and {', '.join(strict)} the open ones, and a "
            "host can load only one of them; move one kind of chips to another host"
        )
    for gpu in gpus:
        last = gpu.driver.get("last_branch", branch)
        if branch > last:
            raise StackError(
                f"driver branch {branch} does not support {gpu.model}, {last} is the last that does; set "
                f'cuda_version to "{last}"'
            )
    if legacy:
        mixed = (
            f"proprietary kernel modules for all chips: {', '.join(legacy)} needs them, {', '.join(both)} accepts them"
        )
        return PROPRIETARY, (mixed,) if both else ()
    return (OPEN if strict or branch >= FIRST_OPEN else PROPRIETARY), ()


def _names(gpus: Iterable[Chip]) -> list[str]:
    return sorted({gpu.model for gpu in gpus})


def oldest_driver(gpus: Sequence[Chip], minimum: str) -> str:
    """Return the oldest driver that supports all chips and is not older than ``minimum``."""
    return newest([minimum, *(gpu.driver["first"] for gpu in gpus if "first" in gpu.driver)])


def check_supported(gpus: Sequence[Chip], branch: int, version: str | None) -> None:
    """Raise StackError where a chip is newer than a driver; of a branch alone, its newest version counts."""
    for gpu in gpus:
        first = gpu.driver.get("first", "0")
        if (not at_least(version, first)) if version else branch < branch_of(first):
            raise StackError(
                f"driver {version or f'branch {branch}'} does not support {gpu.model}, {first} is the first that does; "
                f'set cuda_version to "{branch_of(first)}" or newer'
            )
