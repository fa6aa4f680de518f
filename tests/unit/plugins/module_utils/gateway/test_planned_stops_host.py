# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the planned stops, between the agent and status.yml."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.planned_stops_host import (
    StopsFile,
    read_planned_stops,
)


def test_the_file_outlives_the_agent(tmp_path):
    path = str(tmp_path / "stops.json")
    for looks in ([("NOLB", 0), ("DOWN", 1)], [("UP", 1), ("DRAIN", 1), ("DOWN", 2)]):
        stops = StopsFile(path)
        for status, downs in looks:
            stops.update({"a": (status, downs), "b": ("UP", 0)})
    assert read_planned_stops({"a": 3, "b": 5}, str(tmp_path)) == {"a": 2}
    # HAProxy has begun to count again, and the agent has not looked since.
    assert read_planned_stops({"a": 1}, str(tmp_path)) == {}
    assert read_planned_stops({"a": 3}, str(tmp_path / "none")) == {}


def test_the_file_is_written_for_a_change_only(tmp_path):
    stops = StopsFile(str(tmp_path / "stops.json"))
    stops.update({"a": ("NOLB", 0)})
    assert not os.listdir(tmp_path)
    stops.update({"a": ("DOWN", 1)})
    (tmp_path / "stops.json").unlink()
    stops.update({"a": ("UP", 1)})
    assert not os.listdir(tmp_path)
    # A directory that cannot be written costs the count, and nothing else.
    StopsFile(str(tmp_path / "none/stops.json")).update({"a": ("MAINT", 1)})


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "[" * 50000, '{"a": 1}', '{"a": [1]}', '{"a": [1, -1]}', '{"a": ["x", 1]}', '{"a": [1e999, 1]}'],
)
def test_a_damaged_file_counts_nothing(tmp_path, text):
    (tmp_path / "stops.json").write_text(text)
    assert read_planned_stops({"a": 3}, str(tmp_path)) == {}
    stops = StopsFile(str(tmp_path / "stops.json"))
    for status in ("NOLB", "DOWN"):
        stops.update({"a": (status, int(status == "DOWN"))})
    assert json.loads((tmp_path / "stops.json").read_text()) == {"a": [1, 1]}


def test_no_more_stops_were_planned_than_there_were(tmp_path):
    (tmp_path / "stops.json").write_text('{"a": [2, 900]}')
    assert read_planned_stops({"a": 2}, str(tmp_path)) == {"a": 2}
