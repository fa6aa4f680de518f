# SPDX-License-Identifier: GPL-3.0-or-later
"""The index and the list of tags have everything, in groups that a reader sees at once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
def test_the_page_of_tags_names_the_tags_of_each_playbook(tmp_path):
    """As Ansible itself lists them."""
    groups = ("inference", "gateways", "mirrors", "provisioner")
    (tmp_path / "hosts.yml").write_text("".join(f"{group}: {{hosts: {{a-1: }}}}\n" for group in groups))
    books = sorted(path for path in (TOP / "playbooks").glob("*.yml") if path.name != "rollout_waves.yml")
    run = [Path(sys.executable).with_name("ansible-playbook"), "-i", tmp_path / "hosts.yml", "--list-tags", *books]
    done = subprocess.run(run, cwd=TOP, capture_output=True, text=True, check=True)
    parts = re.split(r"^playbook: .*/(\S+)$", done.stdout, flags=re.M)[1:]
    found = {
        (tag, book)
        for book, text in zip(parts[::2], parts[1::2])
        for tags in re.findall(r"TASK TAGS: \[(.*?)\]", text)
        for tag in tags.split(", ")
    }
    rows = re.findall(r"^\| (`\w+`.*?) \| `([\w.]+)` \|", (TOP / "docs/reference/tags.md").read_text(), re.M)
    page = {(tag, book) for tags, book in rows for tag in re.findall(r"`(\w+)`", tags)}
    assert {each for each in found if each[0] not in ("always", "")} == page
