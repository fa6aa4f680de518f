# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import datetime
import types

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.common.kinds import DEEPEST, name_kind, show_value

VALUES = [
    ({}, "a mapping"),
    (types.MappingProxyType({}), "a mapping"),
    ([], "a list"),
    ((), "a list"),
    (set(), "a set"),
    ("", "a text"),
    (2, "a number"),
    (0.5, "a number"),
    (True, "true or false"),
    (datetime.date(2026, 1, 2), "a date"),
    (datetime.datetime(2026, 1, 2), "a date"),
    (None, "nothing"),
    (b"", "binary data"),
    (object(), "a value of another kind"),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=[type(value).__name__ for value, _kind in VALUES])
def test_a_kind_is_named_in_plain_words(value, kind):
    assert name_kind(value) == kind


@pytest.mark.parametrize("kind", [dict, list, str, int, float])
def test_a_derived_class_has_the_name_of_its_kind(kind):
    derived = type("_AnsibleTagged", (kind,), {})
    assert name_kind(derived()) == name_kind(kind())


SHOWN = [
    (None, "nothing"),
    ("", "''"),
    (0, "0"),
    (True, "true"),
    ([None, False], "[null, false]"),
    ({"a": {"b": True}, 1: None}, "{'a': {'b': true}, 1: null}"),
    (datetime.date(2026, 1, 2), "2026-01-02"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN, ids=[text for _value, text in SHOWN])
def test_a_value_is_shown_in_the_words_of_yaml(value, text):
    assert show_value(value) == text


@pytest.mark.parametrize(
    ("kind", "value", "text"), [(dict, {"x": 1}, "{'x': 1}"), (list, [1], "[1]"), (str, "a", "'a'")]
)
def test_a_derived_class_is_shown_without_its_name(kind, value, text):
    assert show_value(type("_AnsibleTagged", (kind,), {})(value)) == text


def test_a_value_of_any_depth_is_shown():
    deep: list[object] = []
    for _level in range(100_000):
        deep = [deep]
    assert show_value(deep) == "[" * DEEPEST + "[...]" + "]" * DEEPEST
