# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a program of this host can listen on an address."""

from __future__ import annotations

import errno
import platform
import re
import socket
from typing import Mapping

from .files_host import text_of
from .ip_addresses import read_ip
from .kinds import show_value

IPV4, IPV6 = "/proc/net/fib_trie", "/proc/net/if_inet6"
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
# An address, the number of its interface, its prefix and its scope; only those without a zone (global and host).
_INET6 = re.compile(r"(?m)^([0-9a-f]{32}) [0-9a-f]+ [0-9a-f]+ (?:00|10) ")
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  (compared only)
# Addresses that a message shows.
MOST = 8


def listen_problem(listens: Mapping[str, str], may_be_all: bool = True) -> str:
    """Return a sentence for the first option with an address that this host does not have, empty if there is none.

    The kernel decides, so a virtual address is allowed where the host has it, and where ip_nonlocal_bind is set. Names
    are not judged. ``may_be_all`` allows 0.0.0.0 and ::.
    """
    for option, text in listens.items():
        address = text.strip("[]")
        if (address in EVERYWHERE and not may_be_all) or not _can_listen(address):
            return (
                f"{platform.node()}: {option}: found {show_value(address)}, expected an address of this host "
                f"({_listed(own_addresses())}){', or 0.0.0.0 or :: for all of them' if may_be_all else ''}"
            )
    return ""


def own_addresses() -> list[str]:
    """Return the addresses of this host, the loopback addresses last."""
    found = [*_LOCAL.findall(text_of(IPV4)), *(_colons(text) for text in _INET6.findall(text_of(IPV6)))]
    return sorted(dict.fromkeys(found), key=lambda text: read_ip(text).is_loopback)


def _can_listen(address: str) -> bool:
    try:
        family = socket.AF_INET if read_ip(address).version == 4 else socket.AF_INET6
    except ValueError:
        return True
    try:
        with socket.socket(family) as probe:
            probe.bind((address, 0))
    except OSError as exc:
        # Each port of a busy gateway may be one of its own connections: then the host has the address.
        return exc.errno == errno.EADDRINUSE
    return True


def _colons(text: str) -> str:
    return str(read_ip(":".join(re.findall("....", text))))


def _listed(addresses: list[str]) -> str:
    more = [f"and {len(addresses) - MOST} more"] if len(addresses) > MOST else []
    return ", ".join([*addresses[:MOST], *more])
