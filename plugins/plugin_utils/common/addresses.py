# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of package repositories, which appear in diffs and in files that every user of the host can read."""

from __future__ import annotations

import re

_LOGIN = re.compile(r"\A\s*[A-Za-z][\w+.-]*://[^/?#]*@")


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
