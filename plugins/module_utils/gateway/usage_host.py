# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of a gateway with the tokens of its clients; gateway-usage.py writes it."""

from __future__ import annotations

import os
import sqlite3
from typing import Any
from urllib.parse import quote

ROWS = "hour, gateway, client, team, model, requests, aborted, uncounted, prompt, cached, completion"


class UsageError(Exception):
    """The database cannot be read; the message names it and the reason."""


def tokens_per_second(path: str, now: float) -> dict[str, float]:
    """Return the mean rate of each model's answers since this hour began, the first minute aside; none uncounted.

    A negative count is damage, and counts as none.
    """
    try:
        rows = read_usage(path, int(now), int(now) + 1)["rows"]
    except UsageError:
        return {}
    models = {str(row["model"]): 0.0 for row in rows}
    for row in rows:
        models[str(row["model"])] += max(0, row["completion"]) / max(now % 3600, 60)
    return {model: round(rate, 1) for model, rate in models.items()}


def read_usage(path: str, since: int, until: int) -> dict[str, Any]:
    """Return ``rows`` and ``gaps`` of the hours from ``since`` to ``until`` (seconds since 1970). Raises UsageError."""
    if not os.path.exists(path):
        raise UsageError(f"{path} does not exist: this gateway counts no tokens; set gateway_tokens: true")
    try:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=10)
        try:
            connection.row_factory = sqlite3.Row
            # The hour in which the time begins is whole.
            hours = since // 3600 * 3600, until
            rows = connection.execute(
                f"SELECT {ROWS} FROM usage WHERE hour >= ? AND hour < ? ORDER BY {ROWS}",  # noqa: S608  (fixed names)
                hours,
            ).fetchall()
            gaps = connection.execute(
                "SELECT hour, server, missing FROM gaps WHERE hour >= ? AND hour < ? ORDER BY hour, server", hours
            ).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as exc:
        raise UsageError(f"{path}: cannot be read: {exc}; see journalctl -u gateway-usage") from exc
    return {"rows": [dict(row) for row in rows], "gaps": [dict(gap) for gap in gaps]}
