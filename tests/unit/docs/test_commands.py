# SPDX-License-Identifier: GPL-3.0-or-later
"""Every command of the documentation names playbooks, tags and variables that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
PAGES = sorted([TOP / "README.md", TOP / "CONTRIBUTING.md", *(TOP / "docs").rglob("*.md")])
SOURCES = ("playbooks/**/*.yml", "roles/*/defaults/*.yml", "roles/*/meta/*.yml")

COMMAND = re.compile(r"\bansible-playbook (?:[^`\n\\]|\\\n)+")
VARIABLE = re.compile(r"-e [\"']?\{?([a-z]\w*)[=:]")
TAG = re.compile(r"-t (\w+)")
PLAYBOOK = re.compile(r"[\w/.]+\.yml\b")
OWN = re.compile(r"baremetal\.inference\.(\w+)")


def commands(text):
    """Return the commands of a page that run a playbook of the collection, each on one line, without its comment."""
    lines = [" ".join(re.sub(r"\\\n", " ", found).partition(" # ")[0].split()) for found in COMMAND.findall(text)]
    return [line for line in lines if OWN.search(line) or PLAYBOOK.search(line)]


def unknown(command, top, sources):
    """Return the words of a command that the collection does not have."""
    words = [
        name
        for name in PLAYBOOK.findall(command)
        if name.startswith(("playbooks/", "site")) and not (top / name).is_file()
    ]
    words += [name for name in OWN.findall(command) if not (top / "playbooks" / f"{name}.yml").is_file()]
    return words + [name for name in VARIABLE.findall(command) + TAG.findall(command) if name not in sources]


@pytest.fixture(scope="module")
def sources():
    return "\n".join(path.read_text(encoding="utf-8") for pattern in SOURCES for path in sorted(TOP.glob(pattern)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_command_names_what_exists(page, sources):
    found = {command: unknown(command, TOP, sources) for command in commands(page.read_text(encoding="utf-8"))}
    assert {command: words for command, words in found.items() if words} == {}


def test_a_command_with_wrong_names_is_found(sources):
    page = "`ansible-playbook -i x playbooks/gone.yml -e target_hosts=a -e drain_gone=b -t gateway_gone`"
    (command,) = commands(page)
    assert unknown(command, TOP, sources) == ["playbooks/gone.yml", "drain_gone", "gateway_gone"]


def test_commands_are_found():
    assert len([command for page in PAGES for command in commands(page.read_text(encoding="utf-8"))]) > 40
