# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that load code or open the server, wherever they stand."""

from __future__ import annotations

import json

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.restricted import Restrictions
from ansible_collections.baremetal.inference.plugins.plugin_utils.options.table import OptionTableError

FOUND = Restrictions.from_data(
    [
        {"variables": [r"LD_\w+"], "because": "loads code"},
        {"variables": ["DEV_MODE"], "values": "(?!0$).+", "because": "opens endpoints"},
        {"arguments": ["plugin", "paths"], "because": "loads code"},
        {"arguments": ["tools"], "because": "runs tools", "feature": "tool_server"},
        {"keys": [r"\w*module_path"], "values": r"(?!vllm\.).+", "because": "loads code"},
    ]
)


def names(found):
    return [each.name for each in found]


def test_a_name_is_matched_whole_and_by_its_value():
    assert names(FOUND.of_env({"LD_PRELOAD": "/x.so", "OLD_LD_X": "1", "DEV_MODE": "0"})) == ["LD_PRELOAD"]
    assert names(FOUND.of_env({"DEV_MODE": "1"})) == ["DEV_MODE"]
    (found,) = FOUND.of_args({"tools": "demo", "plugins": "a"})
    assert (found.because, found.feature) == ("runs tools", "tool_server")


def test_a_switch_that_is_off_and_an_empty_list_set_nothing():
    assert names(FOUND.of_args({"plugin": False, "paths": []})) == []
    assert names(FOUND.of_args({"plugin": None, "paths": ["a"]})) == ["paths"]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"kv_connector_module_path": "evil"}, "kv.kv_connector_module_path"),
        ('{"kv_connector_module_path": "evil"}', "kv.kv_connector_module_path"),
        ({"extra": {"spec_module_path": "evil"}}, "kv.extra.spec_module_path"),
        # One item of a list has no name of its own.
        ({"extra": {"connectors": [{"a": 1}, {"kv_connector_module_path": "evil"}]}}, "kv.extra.connectors"),
    ],
)
def test_a_key_of_json_is_found_at_any_depth(value, path):
    assert names(FOUND.of_args({"kv": value})) == [path]
    assert not names(FOUND.of_args({"kv": {"kv_connector": "Nixl", "kv_connector_module_path": "vllm.x"}}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "expected a list"),
        ([{"variables": ["X"]}], r"permissions\[0\]: expected because"),
        ([{"variable": ["X"], "because": "y"}], "expected because, and one of variables, arguments, keys"),
        ([{"variables": ["("], "because": "y"}], "not a regular expression"),
    ],
)
def test_a_malformed_list_is_named(data, message):
    with pytest.raises(OptionTableError, match=message):
        Restrictions.from_data(data)


def nested(levels, inner=1):
    for _each in range(levels):
        inner = {"text_config": inner}
    return inner


@pytest.mark.parametrize(
    "value", [nested(900), json.dumps(nested(900)), "[" * 400 + "]" * 400, [json.dumps([json.dumps(nested(19))])]]
)
def test_a_value_that_is_nested_too_deeply_is_named_and_not_read(value):
    (found,) = FOUND.of_args({"hf-overrides": value})
    assert (found.name, found.because) == ("hf-overrides", "has more than 20 levels")


def test_twenty_levels_are_read():
    assert names(FOUND.of_args({"kv": nested(19, {"module_path": "evil"})})) == [f"kv.{'text_config.' * 19}module_path"]
