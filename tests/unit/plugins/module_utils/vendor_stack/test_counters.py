# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.vendor_stack.counters import (
    ChipCounters,
    add_log_errors,
    counts_of,
    first_number,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("121.88 W", 121.88), ("16x", 16), ("0 us", 0), ("48 %", 48), (7, 7), ("N/A", None), ("", None), (None, None)],
)
def test_numbers_of_tools(text, number):
    assert first_number(text) == number


def test_what_is_no_number_is_left_out():
    assert counts_of({"a": "3 us", "b": "N/A", "c": None, "d": 0}) == {"a": 3, "d": 0}


def test_errors_of_the_log_are_added_to_their_chips():
    chips = add_log_errors([ChipCounters("a", errors={"x": 1})], {"a": {"Xid 79": 1}, "b": {"Xid 31": 2}})
    assert [(chip.chip, chip.errors) for chip in chips] == [("a", {"x": 1, "Xid 79": 1}), ("b", {"Xid 31": 2})]
    json.dumps(chips[0].as_dict())
