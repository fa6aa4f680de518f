# SPDX-License-Identifier: GPL-3.0-or-later
"""How AMD's driver divides a chip: the modes of compute and memory, and the devices that programs see."""

from __future__ import annotations

import re

from ..common.kinds import show_value
from ..common.spelling import nearest

# The devices that a mode makes of a chip. CPX makes one of each compute die.
PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
CPX = "CPX"
WHOLE = "SPX/NPS1"

_MODES = re.compile(r"([A-Z]{2}X)(?:/NPS([1-8]))?")
_WORD = re.compile(r"[A-Z0-9]{1,8}")


class PartitionError(ValueError):
    """An invalid partition; the message ends a sentence that begins with its place."""


def partition_text(compute: str, memory: str) -> str:
    """Return the modes as one text, CPX/NPS4; empty where the driver shows no mode, or none that is one."""
    words = [word.strip() for word in (compute, memory)]
    return "/".join(word for word in words if _WORD.fullmatch(word))


def is_same(declared: str, found: str) -> bool:
    """Return whether a chip is in the declared modes; a mode of memory that one of both lacks does not count."""
    pairs = list(zip(declared.upper().split("/"), found.upper().split("/")))
    return all(one == other for one, other in pairs)


def count_parts(partition: str, compute_dies: int | None) -> int:
    """Return the devices that the modes make of a chip with this number of compute dies. Raises PartitionError.

    The rules are those of the kernel's driver: every part has the same number of dies, and no part of the compute
    reaches over several parts of the memory. A device has its share of the chip's memory in every mode of memory.
    """
    if ", " in partition:
        raise PartitionError(f"the chips are in different modes ({partition}); give all of them the same")
    found = _MODES.fullmatch(partition.upper())
    known = [*PARTS, CPX]
    if not found or found[1] not in known:
        raise PartitionError(
            f"found {show_value(partition)}, expected a mode such as CPX or CPX/NPS4; "
            f"{nearest(partition.upper().partition('/')[0], known)}"
        )
    if found[1] == "SPX" and found[2] in (None, "1"):
        return 1
    if not compute_dies:
        raise PartitionError(f"found {show_value(partition)}, but the catalogue has no compute_dies of this chip")
    parts = PARTS.get(found[1], compute_dies)
    if compute_dies % parts:
        raise PartitionError(f"found {show_value(partition)}, but {compute_dies} compute dies make no {parts} parts")
    if parts % int(found[2] or 1):
        raise PartitionError(
            f"found {show_value(partition)}, but {found[1]} divides a chip by {parts}, which is no multiple of the "
            f"{found[2]} parts of its memory"
        )
    return parts
