# Copyright (c) 2026, the baremetal.inference authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's chips among those that were detected on a host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from ..accelerator.recognition import Catalogue


@dataclass(frozen=True)
class Chip:
    """One chip: a device on PCI. ``model`` is its name in the catalogue, such as ``h100`` or ``ascend_a2``.

    ``generation`` is that of the catalogue, which is the gfx target of AMD's chips. ``unsupported`` is the reason why
    vLLM cannot run on the chip, None where it can.
    """

    address: str
    model: str
    generation: str
    unsupported: str | None = None


def chips_of(stack: str, detected: Mapping[str, Any], catalogue: Catalogue) -> tuple[Chip, ...]:
    """Return the chips of a stack in the fact ``accelerator_detected``."""
    models = [(device["address"], catalogue.models[device["model"]]) for device in detected["devices"]]
    return tuple(
        Chip(address, model.key, model.generation, model.unsupported)
        for address, model in models
        if model.stack == stack
    )
