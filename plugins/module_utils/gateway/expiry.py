# SPDX-License-Identifier: GPL-3.0-or-later
"""When the keys of a client end: ``expires``, a day or a time, and its seconds since 1970."""

from __future__ import annotations

import calendar
import datetime
import re
from typing import Any

from ..common.kinds import show_value

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?"
    r"(?: ?([Zz])|([+-])([0-9]{2}):?([0-9]{2}))\Z"
)
_DAY_FIRST = re.compile(r"([0-9]{1,2})[./]([0-9]{1,2})[./]([0-9]{4})\Z")
_LOOSE = re.compile(r"([0-9]{4})\D?([0-9]{1,2})\D?([0-9]{1,2})(?:[Tt ]([0-9]{1,2}):([0-9]{2}).*)?\Z")


def end_of(expires: Any) -> int:
    """Return when keys end, in seconds since 1970: the end of a day in UTC, or a time; 0 for None.

    YAML reads a date or a time without quotes as one. Raises ValueError with what was found, expected and nearest.
    """
    if expires is None:
        return 0
    text = expires.isoformat() if isinstance(expires, datetime.date) else str(expires)
    try:
        found = _start_of(text) + 86400 if _DATE.match(text) else _seconds_of(_TIME.match(text))
        if found < 0 or end_in_words(str(found)) == "never":
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(
            f"found {show_value(expires)[:80]}, expected a date such as 2027-03-31, the last day in UTC, or a time "
            f"with its zone such as 2027-03-31T18:00+02:00{_nearest_end(text)}"
        ) from None
    return found


def _start_of(date: str) -> int:
    """Return when a day begins in UTC. Raises ValueError for a date that no calendar has."""
    year, month, day = (int(part) for part in date.split("-"))
    return int(datetime.datetime(year, month, day, tzinfo=datetime.timezone.utc).timestamp())


def _seconds_of(found: re.Match[str] | None) -> int:
    """Return a time in seconds since 1970. Raises ValueError for None, and for a time that no clock has."""
    if found is None:
        raise ValueError
    year, month, day, hour, minute = (int(part) for part in found.groups()[:5])
    second, utc, sign, hours, minutes = found.groups()[5:]
    offset = datetime.timedelta() if utc else datetime.timedelta(hours=int(hours), minutes=int(minutes))
    zone = datetime.timezone(-offset if sign == "-" else offset)
    return int(datetime.datetime(year, month, day, hour, minute, int(second or 0), tzinfo=zone).timestamp())


def _nearest_end(text: str) -> str:
    """Return "; nearest: ..." with the nearest valid end of a text, empty without one."""
    day_first = _DAY_FIRST.match(text)
    loose = _LOOSE.match(text)
    parts = day_first.groups()[::-1] if day_first else loose.groups() if loose else ()
    if not parts or int(parts[0]) < 1970 or not 1 <= int(parts[1]) <= 12 or not 1 <= int(parts[2]) <= 31:
        return ""
    year, month = int(parts[0]), int(parts[1])
    day = min(int(parts[2]), calendar.monthrange(year, month)[1])
    has_time = len(parts) > 3 and parts[3] is not None and int(parts[3]) < 24 and int(parts[4]) < 60
    if (year, month, day) == (9999, 12, 31):
        day = 30  # the end of the last day is later than any time
    time = f"T{int(parts[3]):02}:{parts[4]}Z" if has_time else ""
    return f"; nearest: {year:04}-{month:02}-{day:02}{time}"


def end_in_words(ends: str | None) -> str:
    """Return an end in a map as ``expires``, "never" without one, or where the map is damaged."""
    try:
        seconds = int(ends or "")
        moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
        if seconds % 86400 == 0:
            return str((moment - datetime.timedelta(days=1)).date())
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "never"
