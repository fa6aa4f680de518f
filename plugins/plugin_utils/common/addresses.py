# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of hosts, and of package repositories, which appear in files that every user of the host can read."""

import re

from ...module_utils.common.ip_addresses import is_ip

_LOGIN = re.compile(r"\A\s*[A-Za-z][\w+.-]*://[^/?#]*@")

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?\Z")


class AddressError(ValueError):
    """An address cannot be used; the message names the variable and shows no password."""


def refuse_login(variable: str, address: str) -> None:
    """Raise AddressError for an address with a user or a password."""
    if _LOGIN.match(address):
        raise AddressError(
            f"{variable}: found an address with a user or a password, expected one without: the address is readable "
            "for everybody on the host. apt reads logins from files in /etc/apt/auth.conf.d on the host; for dnf, let "
            "the mirror admit the host's address or its certificate"
        )


def is_listen(text: str) -> bool:
    """Return whether a program can listen there: at an address, at the one of this host, or at all of them."""
    return text in ("localhost", "*") or is_ip(text)


def is_host(text: str) -> bool:
    """Return whether a text is an IP address or can be a host's name."""
    # Digits and dots alone are an address with a mistake in it.
    is_name = len(text) <= 253 and _HOST.match(text) and not re.match(r"[0-9.]+\Z", text)
    return is_ip(text) or bool(is_name)
