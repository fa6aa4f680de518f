# SPDX-License-Identifier: GPL-3.0-or-later
"""How drivers divide a chip: AMD's modes of compute and memory, NVIDIA's MIG, and the devices that programs see."""

from __future__ import annotations

import re
from typing import Sequence

from ..common.kinds import show_value
from ..common.spelling import nearest

# The devices that a mode makes of a chip. CPX makes one of each compute die.
PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
CPX = "CPX"
WHOLE = "SPX/NPS1"

_MODES = re.compile(r"([A-Z]{2}X)(?:/NPS([1-8]))?")
_WORD = re.compile(r"[A-Z0-9]{1,8}")
# 7x1g.10gb: seven instances of the profile that nvidia-smi calls MIG 1g.10gb.
_MIG = re.compile(r"([1-7])x([1-7])g\.([0-9]{1,3})gb(?:[+-][a-z.]{1,12})?")
_GIB, _GB = 1024**3, 10**9


class PartitionError(ValueError):
    """An invalid partition; the message ends a sentence that begins with its place."""


def mig_instances(partition: str | None) -> int:
    """Return the MIG instances of each chip, 0 for any other text."""
    found = _MIG.fullmatch(str(partition or "").lower())
    return int(found[1]) if found else 0


def mig_gib(partition: str, memory_gib: float) -> float:
    """Return the GiB of one MIG instance of a chip with this memory, at the least that recordings show.

    Profiles are named in GB. Those of an eighth of the chip have less: 16 GiB of 1g.18gb, 20.5 GiB of 1g.23gb.
    """
    found = _MIG.fullmatch(partition.lower())
    named = int(found[3]) if found else 0
    return round(named * _GB / _GIB * (0.93 if named * 6 < memory_gib else 1), 1)


def count_mig(partition: str, slices: int | None, memory_gib: float) -> int:
    """Return the MIG instances that a partition makes of a chip with these slices and memory. Raises PartitionError."""
    found = _MIG.fullmatch(partition.lower())
    if not found:
        raise PartitionError(
            f"found {show_value(partition)}, expected instances of one MIG profile, such as 7x1g.10gb or 2x3g.40gb"
        )
    if not slices:
        raise PartitionError(f"found {show_value(partition)}, but NVIDIA lists no MIG for this chip")
    count, compute, memory = (int(found[group]) for group in (1, 2, 3))
    # The names are rounded: two of 3g.71gb are an H200 of 141 GB, four of 1g.24gb an H100 of 94.
    if count * compute > slices or count * memory > memory_gib * 1.03:
        raise PartitionError(
            f"found {show_value(partition)}, but the chip has {slices} slices and {memory_gib:g} GB for its instances"
        )
    return count


def partition_text(compute: str, memory: str) -> str:
    """Return the modes as one text, CPX/NPS4; empty where the driver shows no mode, or none that is one."""
    words = [word.strip() for word in (compute, memory)]
    return "/".join(word for word in words if _WORD.fullmatch(word))


def is_same(declared: str, found: str) -> bool:
    """Return whether a chip is in the declared modes; a mode of memory that one of both lacks does not count."""
    pairs = list(zip(declared.upper().split("/"), found.upper().split("/")))
    return all(one == other for one, other in pairs)


def count_parts(partition: str, compute_dies: int | None, memory_modes: Sequence[str] = ()) -> int:
    """Return the devices that the modes make of a chip with this number of compute dies. Raises PartitionError.

    The rules are those of the kernel's driver: every part has the same number of dies, and no part of the compute
    reaches over several parts of the memory. NPS2 goes with DPX alone where the memory can be divided by four, too.
    ``memory_modes`` are those of the chip, none where they are not known. A device has its share of the memory in each.
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
    regions = int(found[2] or 1)
    if memory_modes and f"NPS{regions}" not in memory_modes:
        modes = " and ".join(memory_modes)
        raise PartitionError(f"found {show_value(partition)}, but the memory of this chip has the modes {modes} only")
    if regions == 2 < parts and "NPS4" in memory_modes:
        raise PartitionError(f"found {show_value(partition)}, but NPS2 goes with DPX only; set {found[1]}/NPS4 or NPS1")
    if parts % regions:
        raise PartitionError(
            f"found {show_value(partition)}, but {found[1]} divides a chip by {parts}, which is no multiple of the "
            f"{regions} parts of its memory"
        )
    return parts
