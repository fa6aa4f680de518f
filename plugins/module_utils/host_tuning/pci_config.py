# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the registers of Access Control Services and of the link in the configuration space of a PCI function."""

from __future__ import annotations

import struct

# From the PCI Express Base Specification: the standard capability of PCI Express, and the extended one of ACS.
EXPRESS, ACS = 0x10, 0x000D
# Ports of a switch: upstream and downstream.
SWITCH_PORTS = (5, 6)
FIRST_EXTENDED = 0x100


def acs_control(config: bytes) -> int | None:
    """Return the offset of the ACS control register of a switch's port, None for every other function."""
    if port_type(config) not in SWITCH_PORTS:
        return None
    offset, seen = FIRST_EXTENDED, set()
    while FIRST_EXTENDED <= offset <= len(config) - 8 and offset not in seen:
        seen.add(offset)
        header = struct.unpack_from("<I", config, offset)[0]
        if header & 0xFFFF == ACS:
            return offset + 6
        offset = header >> 20 & 0xFFC
    return None


def link_control(config: bytes) -> int | None:
    """Return the offset of the link control register of a PCI Express function, None for one of conventional PCI."""
    offset = _express(config)
    return None if offset is None else offset + 0x10


def port_type(config: bytes) -> int | None:
    """Return the type of port of a PCI Express function, None for a function of conventional PCI."""
    offset = _express(config)
    return None if offset is None else config[offset + 2] >> 4


def _express(config: bytes) -> int | None:
    if len(config) < 64:
        return None
    offset, seen = config[0x34] & 0xFC, set()
    while 0x40 <= offset <= min(len(config), 256) - 4 and offset not in seen:
        seen.add(offset)
        if config[offset] == EXPRESS:
            return offset
        offset = config[offset + 1] & 0xFC
    return None
