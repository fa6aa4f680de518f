# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of HAProxy's table of counters (show stat), in which engines choose some of the text."""

from __future__ import annotations

import csv
import io


def read_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a whole table with its heading. Raises ValueError for anything else.

    HAProxy quotes line breaks, but not the other characters at which Python's splitlines() ends a line. An engine
    chooses them: the answer to a check of its health has a reason, which HAProxy repeats here.
    """
    if not text.startswith("# pxname,") or not text.endswith("\n\n"):
        raise ValueError("HAProxy's counters are incomplete")
    try:
        rows = list(csv.DictReader(io.StringIO(text[2:], newline="\n"), strict=True))
    except csv.Error as exc:
        raise ValueError(f"HAProxy's counters cannot be read: {exc}") from exc
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("HAProxy's counters have a row with another number of columns than the heading")
    return rows
