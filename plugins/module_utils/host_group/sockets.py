# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the kernel's tables of TCP connections."""

from __future__ import annotations

import ipaddress
import sys
from collections import Counter

ESTABLISHED = "01"


def connections(table: str, inodes: set[str], served: int) -> Counter[str]:
    """Return how many established connections there are with each address, in the text of /proc/net/tcp or tcp6.

    Those at the port ``served`` are requests and say nothing about the group.
    """
    found: Counter[str] = Counter()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) <= 9 or fields[3] != ESTABLISHED or fields[9] not in inodes:
            continue
        if int(fields[1].rsplit(":", 1)[1], 16) != served:
            found[address_of(fields[2].rsplit(":", 1)[0])] += 1
    return found


def address_of(text: str) -> str:
    """Return an address of the kernel's tables, which are hexadecimal words in the processor's order of bytes."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
