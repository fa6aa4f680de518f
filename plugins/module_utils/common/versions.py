# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions as numbers, and the specifications that they satisfy."""

from __future__ import annotations

import re
from typing import Any, Callable

_PART = re.compile(r"(>=|<=|==|!=|>|<)?\s*([\w.+-]+)$")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}


def version_key(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparing: ``580.65.06`` is (580, 65, 6)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.split("+")[0]))


def satisfies(version: str, spec: str) -> bool:
    """Return whether a version lies in ``>=0.24,<0.33`` or is ``0.33.0``. Raises ValueError for another form."""
    return in_spec(version, spec, version_key)


def in_spec(value: Any, spec: Any, key: Callable[[Any], Any]) -> bool:
    for part in str(spec).split(","):
        found = _PART.match(part.strip())
        if found is None:
            raise ValueError(f"found {spec!r}, expected a form like '>=0.24,<0.33'")
        left, right = key(value), key(found.group(2))
        if right == ():
            raise ValueError(f"found {spec!r}, expected a form like '>=0.24,<0.33'")
        if isinstance(left, tuple):
            # 0.24 means 0.24.0 here.
            width = max(len(left), len(right))
            left, right = left + (0,) * (width - len(left)), right + (0,) * (width - len(right))
        if not _COMPARE[found.group(1) or "=="](left, right):
            return False
    return True
