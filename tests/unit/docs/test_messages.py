# SPDX-License-Identifier: GPL-3.0-or-later
"""Every message that the page of symptoms quotes is one that the collection, a recipe or a role's README has."""

from __future__ import annotations

import re
from pathlib import Path

import ansible
import pytest

TOP = Path(__file__).resolve().parents[3]
PAGE = TOP / "docs" / "operate" / "when-something-is-wrong.md"
SOURCES = ("plugins/**/*.py", "roles/**/*.yml", "roles/*/README.md", "playbooks/**/*.yml", "catalog/recipes/**/*.yml")
# Programs that stay on a host, and whose journal people read.
SOURCES += ("roles/vllm/files/*.py",)
# Messages of Ansible itself, which a user meets before ours.
OF_ANSIBLE = ("_internal/_yaml/_errors.py", "plugins/callback/default.py", "inventory/manager.py")
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
    texts += [(Path(ansible.__file__).parent / name).read_text(encoding="utf-8") for name in OF_ANSIBLE]
    return " ".join(re.sub(r'"\s*\n\s*f?"', "", "\n".join(texts)).split())


def test_every_quoted_message_is_in_the_sources():
    text = sources(TOP)
    assert [part for part in quoted(PAGE.read_text(encoding="utf-8")) if part not in text] == []


def test_a_message_is_split_where_it_varies():
    page = "| message | cause |\n|---|---|\n| `driver ... is loaded, ... is on disk` (all) | `left out here` |\n"
    assert quoted(page) == ["is loaded", "is on disk"]
    assert len(quoted(PAGE.read_text(encoding="utf-8"))) > 60


@pytest.mark.parametrize(
    "words",
    [
        "no recipe",
        "no release",
        "no manifest of weights",
        "in no file of the catalogue",
        "the accelerator is unknown",
        "has no such flag",
        "does not read this variable",
        "expected a list",
        "vllm_instances is empty",
        "cannot be planned",
        "YAML parsing failed",
        "UNREACHABLE",
        "names no accelerator of the catalogue",
        "no source before this one has a host",
        "accelerator_count is not set",
        "the host has an accelerator and no vllm_instances",
        "connection refused",
        "timed out",
        "connection reset by peer",
        "Failed to parse inventory",
    ],
)
def test_what_a_first_user_meets_is_on_the_page(words):
    """Whoever searches the page for the fixed words finds a row that begins with them."""
    cells = [line.split(" | ")[0] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert any(words in cell for cell in cells)


def test_every_row_can_be_read_alone():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [line for line in lines if re.search(r"\| (the same\b|<role>)", line) or "`<role>" in line] == []
