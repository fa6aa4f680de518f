# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of Huawei's driver, firmware and CANN: their order, and which driver accepts which firmware."""

import re
from typing import List, Tuple

# Release candidates and betas come before their final version.
_EARLY = 0
_FINAL = 1
_RANGE = re.compile(r"\[([^\],]+),([^\]]+)\]")

# int() refuses texts of more than 4,300 digits.
NUMBER = re.compile(r"[0-9]{1,18}")

Key = List[Tuple[int, int]]


def order(version: str) -> Key:
    """Return the sort key of a version: 26.0.rc1 is older than 26.0, 25.0.rc1 older than 25.0.rc1.1."""
    found = []
    for part in re.findall(r"[a-z]*\d+|[a-z]+", version.lower()):
        number = NUMBER.search(part)
        # A separate word, as in 9.2.0-beta.2, comes before its number.
        found.append((_EARLY if part[0].isalpha() else _FINAL, int(number.group()) if number else 0))
    return found


def is_older(version: str, other: str) -> bool:
    """Return whether a version is older than another; missing parts count as 0."""
    left, right = order(version), order(other)
    width = max(len(left), len(right))
    fill = (_FINAL, 0)
    return left + [fill] * (width - len(left)) < right + [fill] * (width - len(right))


def is_same(version: str, other: str) -> bool:
    """Return whether two texts mean the same version: 26.0.RC1 and 26.0.rc1, 9.2.0-beta.2 and RPM's 9.2.0_beta.2."""
    return _plain(version) == _plain(other)


def _plain(version: str) -> str:
    return version.lower().replace("_", "-")


def takes(ranges: str, version: str) -> bool:
    """Return whether ``[7.0.0,7.7.99]`` or ``[25.0,25.0.],[24.1,24.1.]`` includes a version.

    An end with a dot includes every version that begins with it.
    """
    return any(_is_between(version, first, last) for first, last in _RANGE.findall(ranges))


def _is_between(version: str, first: str, last: str) -> bool:
    if last.endswith("."):
        return is_same(version, first) or version.lower().startswith(last.lower())
    return not is_older(version, first) and not is_older(last, version)
