# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.common.overlay import overlay


def test_mappings_are_merged_and_everything_else_is_replaced():
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 1}
    assert overlay(base, {"a": {"c": [3]}, "e": {"f": 1}}) == {"a": {"b": 1, "c": [3]}, "d": 1, "e": {"f": 1}}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": 1}


def test_a_mapping_replaces_a_value_and_a_value_a_mapping():
    assert overlay({"a": 1, "b": {"c": 1}}, {"a": {"x": 1}, "b": None}) == {"a": {"x": 1}, "b": None}
