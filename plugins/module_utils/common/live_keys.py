# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of a YAML file whose change a running program takes over."""

from __future__ import annotations

import re
from typing import Container

# A key of the mapping itself. What belongs to it follows, indented or as the items of a list.
_KEY = re.compile(r"(?P<key>[^\s#'\"{}\[\],:-][^\s:]*):(?:\s|$)")


def differs_only_in(before: str, after: str, keys: Container[str]) -> bool:
    """Return whether two texts of a YAML mapping differ, and in nothing but these keys."""
    return before != after and _without(before, keys) == _without(after, keys)


def _without(text: str, keys: Container[str]) -> list[str]:
    """Return the lines of a YAML mapping except those of some keys."""
    found, skipped = [], False
    for line in text.splitlines():
        key = _KEY.match(line)
        if key or line.startswith("#"):
            skipped = bool(key) and key["key"] in keys if key else False
        if not skipped:
            found.append(line)
    return found
