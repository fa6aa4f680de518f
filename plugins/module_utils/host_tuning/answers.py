# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what nvidia-smi says about persistence and the power limit of each chip."""

from typing import Iterator

from ..common.foreign_numbers import read_finite
from .settings import PERSISTENCE, POWER_CAP, Knob, number

QUERY = "pci.bus_id,persistence_mode,power.limit,power.min_limit,power.max_limit"


def nvidia_knobs(text: str) -> Iterator[Knob]:
    """Yield the settings of each chip from the answer to QUERY in CSV without units; leave out all other fields."""
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(QUERY.split(",")):
            continue
        chip, persistence, *watts = fields
        if persistence in ("Enabled", "Disabled"):
            yield Knob(PERSISTENCE, chip, persistence, ("Enabled", "Disabled"))
        limit, least, most = (read_finite(each) for each in watts)
        if limit is not None and least is not None and most is not None:
            yield Knob(POWER_CAP, chip, number(limit), (), least, most)
