# SPDX-License-Identifier: GPL-3.0-or-later
"""Remove credentials from texts of a host before they leave it: configuration files and output of programs.

The time grows with the length of the text only: a host may send any.
"""

import re
from typing import Iterator, Match

MASK = "********"

_SCHEME = r"[A-Za-z][\w+.-]{0,30}://"
# The user of an address. A slash in a password should be escaped and is not always, so what follows a colon and is no
# port counts as a password up to the last @. It is searched only in words up to their last @, so that no search fails
# at a far end. The scheme is bounded, so that a long word takes no time; behind its end a longer one is found too.
_USER = re.compile(rf"(?P<scheme>{_SCHEME})(?:[^/\s]*|[^/\s:@]*:(?!\d+(?:/|\s|\Z))\S*)@")
_ADDRESS = re.compile(_SCHEME)
_MARK, _END = re.compile(r"[?#\s]"), re.compile(r"[\s\"']|\Z")
# Keys of dnf's repositories.
_LOGIN = re.compile(r"^(?P<key>[ \t]*(?:proxy_)?(?:username|password)\s*[=:]).*$", re.IGNORECASE | re.MULTILINE)


def redact_credentials(text: str) -> str:
    """Return a text without users, passwords and queries of its addresses, and without user and password of dnf."""
    text = re.sub(r"\S+", _without_users, text)
    return _LOGIN.sub(rf"\g<key>{MASK}", "".join(_without_queries(text)))


def _without_users(word: Match[str]) -> str:
    head, last, tail = word.group().rpartition("@")
    return _USER.sub(rf"\g<scheme>{MASK}@", head + last) + tail


def _without_queries(text: str) -> Iterator[str]:
    """Yield the parts of a text in which a mask stands behind the question mark of each address."""
    kept = begin = 0
    for mark in _MARK.finditer(text):
        if mark.start() < begin:
            continue
        address = mark.group() == "?" and _ADDRESS.search(text, begin, mark.start())
        begin = mark.end()
        end = _END.search(text, begin) if address else None
        if end and end.start() > begin:
            yield text[kept:begin] + MASK
            kept = begin = end.start()
    yield text[kept:]
