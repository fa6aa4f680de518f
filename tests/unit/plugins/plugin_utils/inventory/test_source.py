# SPDX-License-Identifier: GPL-3.0-or-later
"""A source reads everything before it changes the inventory; the tests of the plugin have the rest."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleParserError
from ansible_collections.baremetal.inference.plugins.plugin_utils.inventory.source import NO_HOST

from tests.fakes.inventory_plugin import inventory_of, parse, write_source


def test_hosts_of_a_fleet_file_and_of_an_earlier_source_are_sorted(tmp_path):
    source = write_source(tmp_path, {"fleet.csv": "name,accelerator,accelerator_count\ngpu-1,h200,8\n"})
    found = parse(source, inventory_of({"gpu-2": {"accelerator": "mi300x", "accelerator_count": 8}}))
    assert (found.groups["accel_h200"], found.groups["accel_mi300x"]) == ({"gpu-1"}, {"gpu-2"})


def test_a_host_that_is_wrong_changes_nothing(tmp_path):
    source = write_source(tmp_path, {"fleet.csv": "name,accelerator\ngpu-1,h200\ngpu-2,h299\n"})
    inventory = inventory_of({"old": {}})
    with pytest.raises(AnsibleParserError, match="h299"):
        parse(source, inventory)
    assert set(inventory.hosts) == {"old"}


def test_a_source_without_hosts_says_how_to_name_the_file(tmp_path):
    (text,) = parse(write_source(tmp_path, {})).warnings
    assert NO_HOST in text
