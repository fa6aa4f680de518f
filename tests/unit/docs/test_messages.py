# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every message that the page of symptoms quotes is one that the collection, a recipe or a role's README has."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
PAGE = TOP / "docs" / "operate" / "when-something-is-wrong.md"
SOURCES = ("plugins/**/*.py", "roles/**/*.yml", "roles/*/README.md", "playbooks/**/*.yml", "catalog/recipes/**/*.yml")
SHORTEST = 9  # shorter pieces of a message are found anywhere


def quoted(text):
    """Return the fixed parts of the messages in the first column of a page's tables; `...` stands for any text."""
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")]
    codes = [code for cell in cells for code in re.findall(r"`([^`]+)`", cell)]
    parts = [part.strip(" ().,;:") for code in codes for part in code.split("...")]
    return [part for part in parts if len(part) >= SHORTEST]


def sources(top):
    """Return the text of the sources, adjacent literals of Python joined and white space as one blank."""
    texts = [path.read_text(encoding="utf-8") for pattern in SOURCES for path in sorted(top.glob(pattern))]
    return " ".join(re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts)).split())


def test_every_quoted_message_is_in_the_sources():
    text = sources(TOP)
    assert [part for part in quoted(PAGE.read_text(encoding="utf-8")) if part not in text] == []


def test_a_message_is_split_where_it_varies():
    page = "| message | cause |\n|---|---|\n| `driver ... is loaded, ... is on disk` (all) | `left out here` |\n"
    assert quoted(page) == ["is loaded", "is on disk"]
    assert len(quoted(PAGE.read_text(encoding="utf-8"))) > 60
