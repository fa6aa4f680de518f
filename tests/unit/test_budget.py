# SPDX-License-Identifier: GPL-3.0-or-later
"""The budget of lines of each room: it falls by itself (tools/budget.py) and rises only with a reason."""

from __future__ import annotations

from tools.budget import Row, count_lines, lowered, raised, read_table


def test_no_room_has_more_lines_than_its_budget():
    """A room has grown: remove as many lines as it got, or run tools/budget.py --raise 'WHY' and commit the table."""
    table = {room: row.lines for room, row in read_table().items()}
    grown = {room: (lines, table.get(room, 0)) for room, lines in count_lines().items() if lines > table.get(room, 0)}
    assert grown == {}, "lines now, and the budget of each of these rooms"


def test_every_row_has_a_reason():
    assert [row for row in read_table().values() if len(row.reason.strip()) < 8] == []


def test_the_budget_falls_by_itself_and_rises_with_a_reason():
    table = {room: Row(room, 100, "first") for room in ("shrunk", "grown", "gone")}
    counted = {"grown": 110, "new": 5, "shrunk": 90}
    rows = lowered(table, counted)
    assert rows == [Row("grown", 100, "first"), Row("shrunk", 90, "first")]
    assert raised(rows, counted, "second") == [
        Row("grown", 110, "second"),
        Row("new", 5, "second"),
        Row("shrunk", 90, "first"),
    ]
