# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove credentials from texts of a host before they leave it: configuration files and output of programs."""

from __future__ import annotations

import re

MASK = "********"

# The user of an address. A slash in a password should be escaped and is not always, so what follows a colon and is no
# port counts as a password up to the last @.
# The scheme is bounded, so that a long word takes no time; behind its end a longer one is found too.
_USER = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]{0,30}://)(?:[^/\s]*|[^/\s:@]*:(?!\d+(?:/|\s|\Z))\S*)@")
_QUERY = re.compile(r"(?P<address>[A-Za-z][\w+.-]{0,30}://[^\s?#]*\?)[^\s\"']+")
# Keys of dnf's repositories.
_LOGIN = re.compile(r"^(?P<key>[ \t]*(?:proxy_)?(?:username|password)\s*[=:]).*$", re.IGNORECASE | re.MULTILINE)


def redact_credentials(text: str) -> str:
    """Return a text without users, passwords and queries of its addresses, and without user and password of dnf."""
    text = _USER.sub(rf"\g<scheme>{MASK}@", text)
    return _LOGIN.sub(rf"\g<key>{MASK}", _QUERY.sub(rf"\g<address>{MASK}", text))
