# SPDX-License-Identifier: GPL-3.0-or-later
"""What the comparison says has a source, cell by cell: of others one with a date, of this collection its page."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[3] / "docs/explain/comparison.md").read_text(encoding="utf-8")


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_cell_about_another_project_has_a_source_that_is_listed():
    table, sources = PAGE.split("## Sources")
    listed = {row[0]: row[1:] for row in rows(sources)}
    used = set()
    for name, _ours, *others in rows(table):
        assert len(others) == 4, name
        for cell in others:
            marks = re.findall(r"\[([A-Z]\d)\]", cell)
            assert marks, (name, cell)
            used |= set(marks)
    assert used == set(listed)
    for mark, (date, text) in listed.items():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), mark
        assert "](https://" in text, mark


def test_every_cell_about_this_collection_links_to_the_page_that_shows_it():
    """A cell that says "no" cannot; it stayed for a release after replicas followed the load."""
    lacking = [name for name, ours, *_others in rows(PAGE.split("## Sources")[0]) if "](../" not in ours]
    assert lacking == []
