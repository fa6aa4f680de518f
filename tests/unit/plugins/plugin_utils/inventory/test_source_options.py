# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.source_options import (
    SourceOptionError,
    check_options,
)

DEFINITIONS = {
    "plugin": {"type": "str", "required": True},
    "fleet_files": {"type": "list", "elements": "str"},
    "compose": {"type": "dict"},
    "redfish": {"type": "bool"},
    "redfish_parallel": {"type": "int"},
    "redfish_timeout": {"type": "float"},
    "redfish_ca_file": {"type": "str"},
    "anything": {},
}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fleet_file": ["a.csv"]}, "unknown option 'fleet_file'; nearest: 'fleet_files'"),
        ({"foo": 1}, "unknown option 'foo'; known: "),
        ({7: 1}, "unknown option '7'; known: "),
        ([], "found a list, expected a mapping that begins with 'plugin'"),
        ("x", "found 'x', expected a mapping that begins with 'plugin'"),
        ({"redfish_parallel": "abc"}, "redfish_parallel: found 'abc', expected a whole number"),
        ({"redfish_timeout": "inf"}, "redfish_timeout: found 'inf', expected a number"),
        ({"redfish": "maybe"}, "redfish: found 'maybe', expected true or false"),
        ({"redfish": 3}, "redfish: found 3, expected true or false"),
        ({"redfish": None}, "redfish: found nothing, expected true or false; leave the option out"),
        ({"fleet_files": None}, "fleet_files: found nothing, expected a list; leave the option out"),
        ({"fleet_files": {"a": 1}}, "fleet_files: found a mapping, expected a list"),
        ({"fleet_files": [["a.csv"]]}, "fleet_files: found a list in the list, expected texts"),
        ({"compose": ["a"]}, "compose: found a list, expected a mapping"),
        ({"redfish_parallel": True}, "redfish_parallel: found true, expected a whole number"),
        ({"redfish_ca_file": {"a": 1}}, "redfish_ca_file: found a mapping, expected a text"),
    ],
)
def test_one_clear_error(config, message):
    with pytest.raises(SourceOptionError) as caught:
        check_options({"plugin": "x", **config} if isinstance(config, dict) else config, DEFINITIONS, "x")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "config",
    [
        {"plugin": "x", "fleet_files": ["a.csv"], "compose": {"a": "b"}, "redfish": "no", "redfish_parallel": 3},
        {"fleet_files": "a.csv,b.csv", "redfish": "{{ wanted }}", "redfish_ca_file": None, "redfish_parallel": "3"},
    ],
)
def test_what_ansible_accepts_is_accepted(config):
    check_options({"plugin": "x", **config}, DEFINITIONS, "x")


def test_the_source_of_another_plugin_is_not_judged():
    check_options({"all": {"hosts": {}}}, DEFINITIONS, "x")
    check_options({"plugin": "constructed", "foo": 1}, DEFINITIONS, "x")
