# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.headers import (
    ContentRange,
    HeadFields,
    is_other_version,
    read_content_range,
    read_number,
    read_refused_size,
    read_retry_after,
    read_version,
)

DATE = "Sat, 21 Nov 2026 12:00:00 GMT"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        (" 12 ", 12),
        ("9" * 19, 10**19 - 1),
        ("²", None),
        ("٣", None),
        ("9" * 5000, None),
        ("-1", None),
        ("1_0", None),
        ("", None),
        (None, None),
    ],
)
def test_number_is_digits_of_ascii_that_a_file_can_have(text, number):
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes 5-9/100", ContentRange(5, 9, 100)),
        ("bytes 5-9/*", ContentRange(5, 9, None)),
        ("bytes ²-9/100", None),
        (f"bytes {'9' * 5000}-9/100", None),
        (f"bytes 5-9/{'9' * 5000}", None),
        ("bytes */100", None),
        ("", None),
    ],
)
def test_content_range_is_read_or_absent(text, found):
    assert read_content_range(text) == found


def test_size_of_a_refused_range():
    assert read_refused_size("bytes */100") == 100
    assert read_refused_size(f"bytes */{'9' * 5000}") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("9" * 5000, 10**9),
        ("²", 0),
        ("Sat, 21 Nov 2026 12:00:09 GMT", 9),
        ("Sat, 21 Nov 99999999999999999999 12:00:09 GMT", 0),
        ("Sat, 99 Nov 2026 12:00:09 GMT", 0),
        ("Sat, 21 Nov 2026 12:00:09 +999999999999999999999", 0),
        ("Sat, 21 Nov 2026 12:00:09 -0000", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, seconds):
    assert read_retry_after({"Retry-After": text, "Date": DATE}) == seconds
    assert read_retry_after({"Retry-After": text}) in (seconds, 0)


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ({"ETag": '"a"'}, {"ETag": 'W/"a"'}, False),
        ({"ETag": 'W/"a"'}, {"ETag": '"a"'}, False),
        ({"ETag": '"a"'}, {"ETag": 'W/"b"'}, True),
        ({"ETag": '"a"'}, {"ETag": '"b"'}, True),
        ({"ETag": '"a"'}, {"Last-Modified": DATE}, False),
        ({"Last-Modified": DATE}, {"Last-Modified": "Sun, 22 Nov 2026 12:00:00 GMT"}, True),
        ({"ETag": '"a"'}, {}, False),
    ],
)
def test_version_is_another_only_where_both_are_of_one_kind(before, now, changed):
    assert is_other_version(read_version(before), read_version(now)) is changed


def test_fields_of_a_head_are_found_by_any_spelling_and_the_first_one_counts():
    fields = HeadFields(
        [b"Content-Length: 5\r\n", b"content-length: 7\n", b"X:\xb2\r\n", b" X: folded\r\n", b"none\r\n"]
    )
    assert [fields.get(name) for name in ("CONTENT-LENGTH", "x", "none", "folded")] == ["5", "²", None, None]
    assert fields.get("Location", "") == ""
