# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the headers of answers. A header may hold anything: one that is not in its form counts as absent."""

from __future__ import annotations

import email.utils
import re
from typing import Iterable, NamedTuple, Protocol

# Eight exbibytes, the largest file of any system, have 19 digits. Python refuses to read thousands of them.
_NUMBER = re.compile(r"[0-9]{1,19}")
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")
_SIZE_ALONE = re.compile(r"bytes \*/([0-9]{1,19})")
# A wait of more seconds is longer than any that is accepted.
_LONGEST_WAIT = 10.0**9


class Headers(Protocol):
    """The headers of an answer."""

    def get(self, name: str, /) -> str | None:
        """Return the value of a header, None where it is absent."""


class HeadFields:
    """The headers of an answer by their names in any spelling; of several, the first one counts."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.decode("iso-8859-1").partition(":")
            # A line that continues the one before, or has no name, is not a header.
            if colon and not name[:1].isspace():
                self._fields.setdefault(name.lower(), value.strip(" \t\r\n"))

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the value of a header."""
        return self._fields.get(name.lower(), default)


class ContentRange(NamedTuple):
    """The first and last byte of a part, and the size of its file, None where the server does not state it."""

    first: int
    last: int
    size: int | None


def read_number(text: str | None) -> int | None:
    """Return the number of bytes in a header, None for an invalid one."""
    found = _NUMBER.fullmatch((text or "").strip(" \t"))
    return int(found[0]) if found else None


def read_content_range(text: str | None) -> ContentRange | None:
    """Return the parsed Content-Range of a part, None for an invalid one."""
    found = _RANGE.fullmatch((text or "").strip(" \t"))
    if not found:
        return None
    return ContentRange(int(found[1]), int(found[2]), None if found[3] == "*" else int(found[3]))


def read_refused_size(text: str | None) -> int | None:
    """Return the file's size in the Content-Range of an answer 416, None for an invalid one."""
    found = _SIZE_ALONE.fullmatch((text or "").strip(" \t"))
    return int(found[1]) if found else None


def read_retry_after(headers: Headers) -> float:
    """Return the seconds that a server asks to wait; a date is compared with the server's own clock."""
    text = (headers.get("Retry-After") or "").strip(" \t")
    if re.fullmatch(r"[0-9]+", text):
        return float(text) if len(text) < 10 else _LONGEST_WAIT
    try:
        until, now = (email.utils.parsedate_to_datetime(one) for one in (text, headers.get("Date") or ""))
        return max(0.0, (until - now).total_seconds())
    # The exception for an invalid date differs between versions of Python.
    except (TypeError, ValueError, IndexError, KeyError, OverflowError, AttributeError):
        return 0.0


def read_version(headers: Headers) -> str:
    """Return the name of a file's version: its ETag, else its date, else empty.

    A cache that compresses or cuts an answer makes a strong ETag weak; the name in it stays.
    """
    tag = (headers.get("ETag") or "").strip(" \t")
    return tag[2:] if tag.startswith("W/") else tag or headers.get("Last-Modified") or ""


def is_other_version(before: str, now: str) -> bool:
    """Return whether two answers are certainly of different versions: an ETag and a date cannot be compared."""
    return bool(before and now) and before.startswith('"') == now.startswith('"') and before != now
