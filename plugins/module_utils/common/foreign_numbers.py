# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers in the texts of tools, servers and files: digits that Python's int() and float() refuse are no number.

int() ends in ValueError for '²' (isdigit is true) and for more than 4,300 digits, and in OverflowError for float's inf;
it accepts '1_0' and digits of other scripts.
"""

from __future__ import annotations

import math
import re
from typing import Any

# Enough for bytes and nanoseconds; longer ones are damage.
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*", re.ASCII)


def read_count(value: Any) -> int | None:
    """Return a whole number from 0 to 10**18 - 1, or the text of one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 10**18 else None
    return int(value) if _COUNT.fullmatch(value) else None


def read_finite(text: str) -> float | None:
    """Return the number that a text holds; None for other texts, NaN and numbers that are too large for a float."""
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None
