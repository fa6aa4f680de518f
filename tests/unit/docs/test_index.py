# SPDX-License-Identifier: GPL-3.0-or-later
"""The index and the list of tags have everything, in groups that a reader sees at once."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
INDEX = (TOP / "docs/README.md").read_text()
GROUPS = dict(re.findall(r"^## ([^:\n]+):[^\n]*\n(.*?)(?=^## |\Z)", INDEX, re.M | re.S))


def test_operate_is_in_groups_of_at_most_nine():
    pages = {name: re.findall(r"^\| \[[\w.-]+\]\(operate/([\w.-]+)\)", text, re.M) for name, text in GROUPS.items()}
    listed = [page for found in pages.values() for page in found]
    assert max(map(len, pages.values())) <= 9
    assert sorted(listed) == sorted(path.name for path in (TOP / "docs/operate").glob("*.md"))


def test_the_eight_playbooks_are_there():
    rows = re.findall(r"^\| (`\w+\.yml`(?:, `\w+\.yml`)*) \|", GROUPS["Every day"], re.M)
    assert len(rows) == 8
    assert all((TOP / "playbooks" / name).is_file() for row in rows for name in re.findall(r"\w+\.yml", row))


def test_the_page_of_tags_has_all():
    files = [path for folder in ("roles", "playbooks") for path in (TOP / folder).rglob("*.yml")]
    text = "\n".join(path.read_text() for path in files)
    found = {tag.strip() for tags in re.findall(r"\btags: \[([^\]]+)\]", text) for tag in tags.split(",")}
    page = set(re.findall(r"`(\w+)`", (TOP / "docs/reference/tags.md").read_text()))
    assert found - {"always"} <= page
    assert {name for name in page if name.endswith(("_install", "_run", "_configure", "_verify"))} <= found
