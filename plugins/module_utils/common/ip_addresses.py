# SPDX-License-Identifier: GPL-3.0-or-later
"""IP addresses without a zone: Python's own reader takes any text for one, such as ``::1%`` and a line break."""

from __future__ import annotations

import ipaddress


def read_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the address. Raises ValueError."""
    if "%" in text:
        raise ValueError("an address without a zone is expected")
    return ipaddress.ip_address(text)


def is_ip(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        read_ip(text)
    except ValueError:
        return False
    return True
