# SPDX-License-Identifier: GPL-3.0-or-later
"""What strangers look for: each task has one command or none, and a heading in the words that they search for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
PAGE = (TOP / "docs/operate/common-tasks.md").read_text()
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
COMMAND = re.compile(r"^\$ (.*)$", re.M)
# The words that a person types into the search of the site; tests/integration/test_site.py types them.
SEARCHES = (
    "add a gpu host", "serve another model", "new team with a key", "chip died", "upgrade on friday",
    "what changed since yesterday", "take everything off a host",
)  # fmt: skip
# These run the command of each task as the page has it.
RUN_BY = ("tests/integration/test_common_tasks.py", "tests/integration/test_common_tasks_lab.py")


@pytest.mark.parametrize("words", SEARCHES)
def test_a_test_runs_the_command_of_a_task(words):
    (heading,) = [name for name in SECTIONS if words in name.lower()]
    texts = [(TOP / file).read_text() for file in RUN_BY]
    assert any(f'do("{heading}"' in text or f'TASK = "{heading}"' in text for text in texts)


@pytest.mark.parametrize("words", SEARCHES)
def test_a_task_has_a_heading_in_these_words_and_one_command(words):
    (heading,) = [name for name in SECTIONS if words in name.lower()]
    found = COMMAND.findall(SECTIONS[heading])
    assert len(found) == 1 and found[0].startswith("ansible-playbook -i inventories/SITE ")
    assert "\\" not in found[0]
    # The page with everything else.
    assert re.search(r"\]\([a-z-]+\.md", SECTIONS[heading])


def test_the_page_has_these_tasks_and_the_index_begins_with_it():
    assert len(SECTIONS) == len(SEARCHES)
    index = (TOP / "docs/README.md").read_text()
    assert index.index("operate/common-tasks.md") < index.index("operate/when-something-is-wrong.md")
