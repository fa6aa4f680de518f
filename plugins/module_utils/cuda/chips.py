# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's chips of a host: the kernel modules that support them, and whether they share a fabric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from ..accelerator.recognition import Catalogue
from ..vendor_stack.chips import Chip, chips_of
from ..vendor_stack.model import StackError

OPEN = "open"
PROPRIETARY = "proprietary"

STACK = "cuda"
# Generations that the open modules do not support, and the last branch that supports them.
LEGACY = ("maxwell", "pascal", "volta")
LAST_LEGACY = 580
# Generations, and single models of others, that only the open modules support.
OPEN_ONLY = ("blackwell",)
OPEN_ONLY_MODELS = ("gh200",)
# The first branch that supports Blackwell is that of CUDA 12.8.
FIRST_BLACKWELL = 570
# NVIDIA's own rule where both flavours work.
FIRST_OPEN = 560

# Boards whose NVLink 5 switches are not PCI functions of NVIDIA's. Such a board has eight chips.
NVLINK5_MODELS = ("b200", "b300")
NVLINK5_BOARD = 8
NVSWITCH = "nvswitch"
NVLINK5 = "nvlink5"


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
        boards = sum(gpu.model in NVLINK5_MODELS for gpu in self.gpus) == NVLINK5_BOARD
        return NVLINK5 if self.management_ports or boards else ""


def hardware_of(detected: Mapping[str, Any], catalogue: Catalogue, management_ports: bool) -> CudaHardware:
    """Return NVIDIA's part of the fact ``accelerator_detected``."""
    gpus = chips_of(STACK, detected, catalogue)
    return CudaHardware(gpus, tuple(switch["address"] for switch in detected["switches"]), management_ports)


def flavour_of(gpus: Sequence[Chip], branch: int) -> tuple[str, tuple[str, ...]]:
    """Return the kernel modules that the chips need, and notes. Raises StackError where none supports all of them."""
    legacy = _names(gpu for gpu in gpus if gpu.generation in LEGACY)
    strict = _names(gpu for gpu in gpus if gpu.generation in OPEN_ONLY or gpu.model in OPEN_ONLY_MODELS)
    both = _names(gpu for gpu in gpus if gpu.model not in (*legacy, *strict))
    if legacy and strict:
        raise StackError(
            f"{', '.join(legacy)} needs the proprietary kernel modules and {', '.join(strict)} the open ones, and a "
            "host can load only one of them; move one kind of chips to another host"
        )
    if legacy and branch > LAST_LEGACY:
        raise StackError(
            f"driver branch {branch} does not support {', '.join(legacy)}, {LAST_LEGACY} is the last that does; set "
            f'cuda_version to "{LAST_LEGACY}"'
        )
    if any(gpu.generation in OPEN_ONLY for gpu in gpus) and branch < FIRST_BLACKWELL:
        raise StackError(
            f"driver branch {branch} does not support {', '.join(strict)}, {FIRST_BLACKWELL} is the first that does; "
            f'set cuda_version to "{FIRST_BLACKWELL}" or newer'
        )
    if legacy:
        mixed = (
            f"proprietary kernel modules for all chips: {', '.join(legacy)} needs them, {', '.join(both)} accepts them"
        )
        return PROPRIETARY, (mixed,) if both else ()
    return (OPEN if strict or branch >= FIRST_OPEN else PROPRIETARY), ()


def _names(gpus: Iterable[Chip]) -> list[str]:
    return sorted({gpu.model for gpu in gpus})
