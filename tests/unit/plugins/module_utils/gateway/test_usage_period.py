# SPDX-License-Identifier: GPL-3.0-or-later
"""The time for which usage is reported."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_period import PeriodError, time_of

NOW = 1_764_077_502


@pytest.mark.parametrize(
    ("text", "found"),
    [("2025-11-25", 1764028800), ("2025-11", 1761955200), ("7d", NOW - 604800), ("24h", NOW - 86400)],
)
def test_a_time_is_a_day_a_month_or_before_now(text, found):
    assert time_of(text, NOW) == found


@pytest.mark.parametrize("text", ["", "2025", "2025-13", "2025-02-30", "0d", "7w", "-7d", "yesterday", "2025-1-1"])
def test_anything_else_is_an_error_that_shows_a_time(text):
    with pytest.raises(PeriodError, match="expected a day such as 2026-11-25"):
        time_of(text, NOW)
