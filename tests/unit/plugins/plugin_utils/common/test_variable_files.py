# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.common.variable_files import (
    deep_variable,
    fault_of,
    unique_keys,
)

VARIABLE = "ANSIBLE_DUPLICATE_YAML_DICT_KEY"


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


def test_the_configuration_of_a_user_stays(monkeypatch):
    monkeypatch.setenv(VARIABLE, "ignore")
    with unique_keys():
        assert os.environ[VARIABLE] == "ignore"
    assert os.environ[VARIABLE] == "ignore"


def test_a_deep_variable_is_found_whatever_its_aliases():
    deep = wide = [1]
    for _level in range(99):
        deep, wide = [deep], {"a": wide, "b": wide}
    assert deep_variable({"a": deep, "b": {"c": [{"d": 1}]}}) is None
    assert deep_variable({"a": [[]], "b": [[deep]]}) == "b"
    assert deep_variable({"a": wide}) is None and deep_variable({"a": {"x": {"y": wide}}}) == "a"
