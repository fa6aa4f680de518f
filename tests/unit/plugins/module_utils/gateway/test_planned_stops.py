# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the times that a server went down were asked for."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.planned_stops import PlannedStops


def planned_after(*looks):
    """Return the planned stops of a server after these looks, each its status and how often it went down."""
    stops = PlannedStops()
    for status, downs in looks:
        stops.update({"a": (status, downs)})
    return stops.planned({"a": looks[-1][1]}).get("a", 0)


@pytest.mark.parametrize(
    ("looks", "planned"),
    [
        ([("UP", 0), ("DOWN", 1), ("UP", 1)], 0),
        ([("UP", 0), ("DOWN (agent)", 1), ("UP", 1)], 0),
        # Drained, then stopped; with its checks failing for the first time, too.
        ([("UP", 0), ("DRAIN", 0), ("DOWN", 1), ("DRAIN", 1), ("UP", 1)], 1),
        ([("UP", 0), ("DRAIN 2/3", 0), ("DOWN", 1)], 1),
        # systemd stops it: its checks get 404 before they fail.
        ([("UP", 0), ("NOLB", 0), ("NOLB 1/3", 0), ("DOWN", 1), ("DOWN 1/2", 1), ("UP", 1)], 1),
        # HAProxy counts maintenance as it begins.
        ([("UP", 0), ("MAINT", 1), ("UP", 1)], 1),
        # A fault between two planned stops.
        ([("NOLB", 0), ("DOWN", 1), ("UP", 1), ("DOWN", 2), ("UP", 2), ("DRAIN", 2), ("DOWN", 3)], 2),
        # It came back and went down again between two looks: that one was not asked for.
        ([("NOLB", 0), ("DOWN", 2)], 1),
        # What was before the first look is not known.
        ([("DOWN", 7), ("UP", 7)], 0),
        # HAProxy was reloaded and counts from zero.
        ([("NOLB", 3), ("DOWN", 4), ("UP", 0), ("DOWN", 1)], 0),
        ([("NOLB", 3), ("DOWN", 1)], 1),
    ],
)
def test_a_stop_after_a_drain_or_an_announcement_is_planned(looks, planned):
    assert planned_after(*looks) == planned
