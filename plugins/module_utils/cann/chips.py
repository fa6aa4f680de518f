# SPDX-License-Identifier: GPL-3.0-or-later
"""Huawei's chips of a host, and their names in the vendor's packages and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ..accelerator.recognition import Catalogue
from ..vendor_stack.chips import Chip, chips_of
from ..vendor_stack.model import StackError

STACK = "cann"


@dataclass(frozen=True)
class AscendChip:
    """A kind of chip with its own driver package.

    ``word`` is part of the names of ``.run`` files, ``ops`` of those of CANN's operators; ``apt`` and ``dnf`` are the
    driver's packages, ``firmware_apt`` and ``firmware_dnf`` those of its firmware.
    """

    word: str
    ops: str
    apt: str
    dnf: str
    firmware_apt: str
    firmware_dnf: str


# By generation of the catalogue. UNCONFIRMED: firmware packages, which were seen only for the 910B on a clone of
# RHEL and are named after the driver here; dnf's name for the 310P; both names for the 950, from a single source each.
CHIPS = {
    "ascend_310p": AscendChip(
        "310p", "310p", "ascend310p-driver", "Ascend310P-driver", "ascend310p-firmware", "Ascend310P-firmware"
    ),
    "ascend_910": AscendChip(
        "910", "910", "ascend910-driver", "Ascend910-driver", "ascend910-firmware", "Ascend910-firmware"
    ),
    "ascend_a2": AscendChip(
        "910b", "910b", "ascend910b-driver", "Ascend910B-driver", "ascend910b-firmware", "Ascend910B-firmware"
    ),
    "ascend_a3": AscendChip(
        "A3",
        "A3",
        "atlas-a3-hdk-npu-driver",
        "Atlas-A3-hdk-npu-driver",
        "atlas-a3-hdk-npu-firmware",
        "Atlas-A3-hdk-npu-firmware",
    ),
    "ascend_950": AscendChip(
        "950",
        "950",
        "ascend-hdk-950-npu-driver",
        "Ascend-hdk-950-npu-driver",
        "ascend-hdk-950-npu-firmware",
        "Ascend-hdk-950-npu-firmware",
    ),
}


@dataclass(frozen=True)
class CannHardware:
    """Huawei's devices of a host, each a die of a card, and the nodes in /dev that its driver must provide for them."""

    npus: tuple[Chip, ...]
    nodes: tuple[str, ...] = ()


def hardware_of(detected: Mapping[str, Any], catalogue: Catalogue) -> CannHardware:
    """Return Huawei's part of the fact ``accelerator_detected``."""
    npus = chips_of(STACK, detected, catalogue)
    models = [catalogue.models[npu.model] for npu in npus]
    nodes = [node.format(index=index) for index, model in enumerate(models) for node in model.devices]
    return CannHardware(npus, tuple(dict.fromkeys(nodes)))


def chip_of(hardware: CannHardware) -> AscendChip:
    """Return the kind of all chips of a host. Raises StackError for none, several kinds, or a chip without a driver."""
    if not hardware.npus:
        raise StackError("no Ascend chip is on PCI; take the host out of accel_cann, or check why lspci lists none")
    found = {npu.generation: npu.model for npu in hardware.npus}
    unknown = sorted(model for generation, model in found.items() if generation not in CHIPS)
    if unknown:
        known = ", ".join(generation for generation in CHIPS)
        raise StackError(f"no driver package is known for {', '.join(unknown)}; there are some for {known}")
    if len(found) > 1:
        words = " and ".join(f"{model} ({CHIPS[generation].word})" for generation, model in sorted(found.items()))
        raise StackError(
            f"{words} need different driver packages, but a host can have only one of them; move one kind of chips "
            "to another host"
        )
    return CHIPS[next(iter(found))]
