# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.weights.progress import (
    Progress,
    format_bytes,
    format_duration,
    format_progress,
    format_summary,
    parse_progress,
)


def test_line_says_how_much_how_fast_and_how_long():
    progress = Progress("openai/gpt-oss-120b", "hub", 31_200_000_000, 65_300_000_000, 12, 21, 1.1e9)
    assert format_progress(progress) == (
        "openai/gpt-oss-120b: 31.2 GB of 65.3 GB (47 %), 12 of 21 files, 1.1 GB/s, 31 s left, from hub"
    )


def test_line_without_a_rate_promises_nothing():
    assert format_progress(Progress("a/b", "hub", 0, 10, 0, 1)) == "a/b: 0 B of 10 B (0 %), 0 of 1 files, from hub"


def test_line_of_one_who_waits_names_the_other():
    assert (
        format_progress(Progress("a/b", waits_for="process 7 of gpu-1"))
        == "a/b: waits for process 7 of gpu-1, which fetches it"
    )


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (99_960_000, "100 MB"), (2.5e12, "2500 GB")]
)
def test_amounts(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min 30 s"), (7500, "2 h 5 min")])
def test_durations(seconds, text):
    assert format_duration(seconds) == text


def test_summary():
    assert format_summary(1_000_000_000, 10, 3, ["hub"]) == "3 files, 1.0 GB in 10 s at 100 MB/s from hub"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"what": 1}', "7"])
def test_what_is_no_report_is_none(text):
    assert parse_progress(text) is None
