# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.variable_files import (
    deep_variable,
    doubled_key,
    fault_of,
)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a: {b: [1, 2027-02-30]}", 1, 12, "a.b[1]: found '2027-02-30', which cannot be read as a date; correct it"),
        ("2027-13-01: a", 1, 1, "a key: found '2027-13-01', which cannot be read as a date"),
        ("a: {2027-13-01: b}", 1, 5, "a: a key: found '2027-13-01'"),
        ("a: !!float x", 1, 4, "a: found 'x', which cannot be read as a number"),
        ("a: &a\n  - *a\n  - 0b_", 3, 5, "a[1]: found '0b_', which cannot be read as a number"),
        ("# x\nwords", 2, 1, "found a text, expected a mapping of variables"),
        ("a: " + "{a: " * 3000 + "}" * 3000, 1, 1, "found more than 100 levels of lists and mappings"),
    ],
)
def test_a_fault_has_its_place_and_its_key(text, line, column, words):
    fault = fault_of(text)
    assert fault.text.startswith(words) and (fault.line, fault.column) == (line, column)


@pytest.mark.parametrize("text", ["", "a: 1", "a: !vault |\n  $ANSIBLE_VAULT\nb: !unsafe x", "a: [", "{a: b}: c"])
def test_what_ansible_reads_or_places_itself_is_no_fault(text):
    assert fault_of(text) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: 1\nb: 2\na: 3", (3, 1)),
        ("a: {b: [{c: 1, d: 2, c: 3}]}", (1, 22)),
        ("a: &a\n  - *a\n  - {b: 1, b: 1}", (3, 12)),
    ],
)
def test_a_key_that_stands_twice_has_its_place(text, place):
    fault = doubled_key(text)
    assert (fault.line, fault.column) == place and "twice, expected it once" in fault.text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a: [",
        "a: 1\n'1': 2\n1: 3",
        "a: {b: 1}\nc: {b: 1}",
        "a: &a {b: 1}\nc: {<<: *a, b: 2}",
        "{a: " * 5000,
        "[" * 90,
    ],
)
def test_a_key_that_overrides_one_of_an_anchor_is_there_once(text):
    assert doubled_key(text) is None


def test_a_deep_variable_is_found_whatever_its_aliases():
    deep = wide = [1]
    for _level in range(99):
        deep, wide = [deep], {"a": wide, "b": wide}
    assert deep_variable({"a": deep, "b": {"c": [{"d": 1}]}}) is None
    assert deep_variable({"a": [[]], "b": [[deep]]}) == "b"
    assert deep_variable({"a": wide}) is None and deep_variable({"a": {"x": {"y": wide}}}) == "a"
