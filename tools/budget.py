#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the budget of lines of each room, tests/unit/budget.csv: it falls by itself and rises only with a reason.

    tools/budget.py                # lower the figures to the lines that there are (make fast does it)
    tools/budget.py --raise 'WHY'  # also raise those of rooms that grew, and add new rooms, with the reason

Commit the table with the change. tests/unit/test_budget.py fails for a room above its figure.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[1]
TABLE = TOP / "tests/unit/budget.csv"
SUFFIXES = {".py", ".yml", ".j2", ".lua", ".sh", ".json", ".js", ".css", ".html"}


class Row(NamedTuple):
    """How many lines a room may have, and why it may have more than before."""

    room: str
    lines: int
    reason: str


def count_lines() -> dict[str, int]:
    """Return the lines of each room: both trees, other kinds of plugins, roles, playbooks and the command."""
    trees = [TOP / "plugins/module_utils", TOP / "plugins/plugin_utils", TOP / "roles"]
    rooms = [path for tree in trees for path in tree.iterdir()]
    rooms += [path for path in (TOP / "plugins").iterdir() if path not in trees]
    rooms += [TOP / "playbooks", TOP / "tools/command"]
    counted = {str(room.relative_to(TOP)): _lines_of(room) for room in rooms}
    return {room: lines for room, lines in sorted(counted.items()) if lines}


def _lines_of(room: Path) -> int:
    files = [path for path in room.rglob("*") if path.suffix in SUFFIXES and path.is_file()]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def read_table() -> dict[str, Row]:
    """Return the rows of the table by room."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["room"]: Row(row["room"], int(row["lines"]), row["reason"]) for row in csv.DictReader(file)}


def lowered(table: dict[str, Row], counted: dict[str, int]) -> list[Row]:
    """Return the rows of the rooms that there are, none above its lines."""
    return [row._replace(lines=min(row.lines, counted[room])) for room, row in sorted(table.items()) if room in counted]


def raised(rows: list[Row], counted: dict[str, int], reason: str) -> list[Row]:
    """Return the rows with a figure for each room; those that are new or rise get the reason."""
    known = {row.room: row for row in rows}
    return [
        known[room] if room in known and known[room].lines >= lines else Row(room, lines, reason)
        for room, lines in counted.items()
    ]


def write_table(rows: list[Row]) -> None:
    """Write the rows."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([Row._fields, *rows])


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--raise", dest="reason", metavar="WHY", help="why rooms may have more lines")
    options = parser.parse_args()
    counted = count_lines()
    rows = lowered(read_table(), counted)
    write_table(raised(rows, counted, options.reason) if options.reason else rows)


if __name__ == "__main__":
    main()
