# SPDX-License-Identifier: GPL-3.0-or-later
"""The time for which usage is reported."""

import datetime
import re

_AGO = re.compile(r"([1-9][0-9]{0,4})([hd])\Z")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})(?:-([0-9]{2}))?\Z")
SECONDS = {"h": 3600, "d": 86400}


class PeriodError(ValueError):
    """A text is no time; the message says what is expected."""


def time_of(text: str, now: int) -> int:
    """Return a time in seconds since 1970: of ``2026-11``, ``2026-11-25``, or ``7d`` or ``24h`` before ``now``.

    Days and months begin in UTC. Raises PeriodError.
    """
    ago = _AGO.match(text)
    if ago:
        return now - int(ago.group(1)) * SECONDS[ago.group(2)]
    found = _DATE.match(text)
    try:
        if found:
            year, month, day = (int(part or 1) for part in found.groups())
            return int(datetime.datetime(year, month, day, tzinfo=datetime.timezone.utc).timestamp())
    except ValueError:
        pass
    raise PeriodError(f"found {text[:80]!r}, expected a day such as 2026-11-25, a month such as 2026-11, or 7d, or 24h")
