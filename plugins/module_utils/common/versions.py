# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare versions on a host, where only the standard library is at hand.

The controller's code uses plugin_utils/common/versions.py, which asks ``packaging``.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Sequence

from .kinds import show_value

_PART = re.compile(r"(>=|<=|==|!=|>|<)?\s*([\w.+-]+)\Z")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
}
# Marks of a pre-release after its numbers: 0.20.2rc1, 8.3.RC1, 1.0a2, 2.0.dev3. The kernel 6.8.0-31-generic is none.
_STAGE = re.compile(r"(?<=\d)[._-]?(dev|alpha|a|beta|b|rc|c|pre)[._-]?([0-9]{0,18})\Z", re.IGNORECASE)
_STAGES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "pre": -1, "rc": -1}
_FINAL = (0, 0)
# int() refuses texts of more than 4,300 digits.
_NUMBER = re.compile(r"[0-9]{1,18}")


def numbers_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a version: ``580.65.06`` is (580, 65, 6), ``12.8+cu128`` is (12, 8)."""
    return tuple(int(part) for part in _NUMBER.findall(text.split("+")[0]))


def version_key(text: str) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Return the sort key of a version: 0.24 equals 0.24.0, and 0.20.2rc1 comes before 0.20.2."""
    plain = text.split("+")[0]
    found = _STAGE.search(plain)
    numbers = list(numbers_of(plain[: found.start()] if found else plain))
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), (_STAGES[found.group(1).lower()], int(found.group(2) or 0)) if found else _FINAL


def satisfies(version: str, spec: str) -> bool:
    """Return whether a version lies in ``>=0.24,<0.33`` or is ``0.33.0``. Raises ValueError for another form."""
    return in_spec(version, spec, version_key)


def in_spec(value: Any, spec: Any, key: Callable[[Any], Any]) -> bool:
    """Return whether ``key(value)`` lies in a specification such as ``>=0.24,<0.33``. Raises ValueError."""
    for part in str(spec).split(","):
        found = _PART.match(part.strip())
        if found is None or not re.search(r"\d", found.group(2)):
            raise ValueError(f"found {show_value(spec)}, expected a form like '>=0.24,<0.33'")
        if not _COMPARE[found.group(1) or "=="](key(value), key(found.group(2))):
            return False
    return True


def upstream_version(version: str) -> str:
    """Return the vendor's part of a package's version: 580.95.05 of ``3:580.95.05-1.el9``."""
    return re.split(r"[-+~]", version.split(":", 1)[-1])[0]


def at_least(version: str, minimum: str) -> bool:
    """Return whether a package's version is not older than another; a missing number counts as 0."""
    return satisfies(upstream_version(version), f">={minimum}")


def newest(versions: Sequence[str]) -> str:
    """Return the newest of several versions of one package; there must be at least one."""
    return max(versions, key=_package_key)


def _package_key(text: str) -> tuple[Any, ...]:
    """Return what versions of a package are sorted by: its epoch, the vendor's version, the numbers of its revision."""
    epoch, _colon, rest = text.rpartition(":")
    upstream = upstream_version(text)
    revision = [int(number) for number in _NUMBER.findall(rest[len(upstream) :])]
    return numbers_of(epoch), version_key(upstream), revision
