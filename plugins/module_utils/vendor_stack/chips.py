# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's chips among those that were detected on a host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping

from ..accelerator.recognition import Catalogue


@dataclass(frozen=True)
class Chip:
    """One chip: a device on PCI. ``model`` is its name in the catalogue, such as ``h100`` or ``ascend_a2``.

    ``generation`` is that of the catalogue, which is the gfx target of AMD's chips. ``unsupported`` is the reason why
    vLLM cannot run on the chip, None where it can. ``driver`` is what the catalogue says that it needs of the driver.
    """

    address: str
    model: str
    generation: str
    unsupported: str | None = None
    driver: Mapping[str, Any] = field(default_factory=dict)


def chips_of(stack: str, detected: Mapping[str, Any], catalogue: Catalogue) -> tuple[Chip, ...]:
    """Return the chips of a stack in the fact ``accelerator_detected``."""
    found = []
    for device in detected["devices"]:
        model = catalogue.models[device["model"]]
        chip = catalogue.chips.get(f"{device.get('vendor_id')}:{device.get('device_id')}", model)
        if model.stack == stack:
            found.append(Chip(device["address"], model.key, model.generation, model.unsupported, chip.driver))
    return tuple(found)
