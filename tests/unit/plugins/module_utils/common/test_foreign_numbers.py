# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.foreign_numbers import read_count, read_finite


@pytest.mark.parametrize(("value", "count"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1), (0, 0), (12, 12)])
def test_counts(value, count):
    assert read_count(value) == count


@pytest.mark.parametrize(
    "value",
    ["", " 1", "1\n", "-1", "+1", "1_0", "0x10", "1e3", "1.0", "²", "٣", "9" * 19, "9" * 5000, None, True, -1, 10**18],
)
def test_anything_else_is_no_count(value):
    assert read_count(value) is None
    assert read_count([value]) is None


@pytest.mark.parametrize(("text", "number"), [("121.88", 121.88), ("-1", -1.0), ("1e3", 1000.0), ("9" * 30, 1e30)])
def test_finite_numbers(text, number):
    assert read_finite(text) == number


@pytest.mark.parametrize(
    "text", ["", "N/A", "nan", "inf", "-Infinity", "1e999", "9" * 5000, "²", "٣", "1_0", "0x10", ".", "9" * 10**6 + "x"]
)
def test_anything_else_is_no_number(text):
    assert read_finite(text) is None
