# SPDX-License-Identifier: GPL-3.0-or-later
"""Places of PCI functions in their tree, and the registers that decide on transfers between them."""

from __future__ import annotations

import re
from typing import Sequence

_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Extended capabilities begin here, 8 bytes or more each, in a space that ends at 4096.
_EXTENDED, _SPACE = 0x100, 4096
_ACS = 0x000D
# Bits of ACS Control: requests, and completions, between devices below a bridge go up to the processor.
_REDIRECTS = 0b1100


def bridges_in(path: str) -> list[str]:
    """Return the functions above the last one in the real path of a PCI device in sysfs, the nearest last."""
    return _FUNCTION.findall(path)[:-1]


def shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many bridges two functions have in common, from the root port on."""
    return next((place for place, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))


def acs_redirects(registers: bytes) -> bool:
    """Return whether the registers of a bridge redirect transfers between devices; others can read 64 bytes only."""
    place = _EXTENDED
    # A damaged list may lead back to itself.
    for _number in range((_SPACE - _EXTENDED) // 8):
        header = int.from_bytes(registers[place : place + 4], "little")
        if place < _EXTENDED or header in (0, 0xFFFFFFFF):
            return False
        if header & 0xFFFF == _ACS:
            return bool(int.from_bytes(registers[place + 6 : place + 8], "little") & _REDIRECTS)
        place = header >> 20
    return False
