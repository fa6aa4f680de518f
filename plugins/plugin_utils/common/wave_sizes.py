# SPDX-License-Identifier: GPL-3.0-or-later
"""The size of a wave: a number of hosts, or a share such as 25%."""

import re
from typing import Any

from ...module_utils.common.kinds import show_value

_SHARE = re.compile(r"(?P<share>\d{1,3})\s*%", re.ASCII)
_NUMBER = re.compile(r"[1-9]\d{0,5}", re.ASCII)


class WaveSizeError(ValueError):
    """A value is not the size of a wave; the message is a clause that begins with what was found."""


def size_of(entry: Any, hosts: int) -> int:
    """Return the number of hosts in a wave, from a number or a share of ``hosts``; a share gives at least one host.

    Raises WaveSizeError for any other value.
    """
    text = "" if isinstance(entry, bool) else str(entry).strip()
    match = _SHARE.fullmatch(text)
    if match and 0 < int(match["share"]) <= 100:
        return max(1, hosts * int(match["share"]) // 100)
    if _NUMBER.fullmatch(text):
        return int(text)
    raise WaveSizeError(f"found {show_value(entry)}, expected a number of hosts above 0, or a share such as 25%")
