# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages name code as `file.py::name`; each such file has that function, class or method."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
PAGES = [TOP / "CONTRIBUTING.md", TOP / "plugins/README.md", *sorted(TOP.glob("docs/*/*.md"))]
# `plugins/.../file.py::name`, and `::other` for another name of the file that was named last.
REFERENCE = re.compile(r"`([\w./-]+\.py)?::(\w+)`")


def references(page: Path) -> list[tuple[str, str]]:
    """Return each file and name that a page refers to; file.py stands for any file."""
    found, last = [], ""
    for file, name in REFERENCE.findall(page.read_text(encoding="utf-8")):
        last = file or last
        found.append((last, name))
    return [(file, name) for file, name in found if file != "file.py"]


def names_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_the_code_that_a_page_names_is_there(page):
    missing = []
    for file, name in references(page):
        # The map in plugins/ names files from there.
        path = next((top / file for top in (TOP, page.parent) if (top / file).is_file()), None)
        if path is None or name not in names_in(path):
            missing.append(f"{file}::{name}")
    assert not missing, "renamed or moved; name what is there now"


def test_references_are_found():
    assert len(references(TOP / "plugins/README.md")) > 10
    assert len(references(TOP / "docs/explain/architecture.md")) > 30


@pytest.mark.parametrize("tree", ["plugin_utils", "module_utils"])
def test_every_room_has_a_row_for_contributors_and_its_first_file_is_there(tree):
    text = (TOP / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(rf"\(`plugins/{tree}/`\):\n\n(.*?)\n\n", text, re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    rooms = [(re.findall(r"`(\w+)`", row[0]), re.findall(r"`([\w.]+)`", row[2])) for row in rows]
    tops = TOP / "plugins" / tree
    assert {name for names, _files in rooms for name in names} == {
        path.name for path in tops.iterdir() if any(path.glob("*.py"))
    }
    for names, files in rooms:
        for name in names:
            assert any((tops / name / file).is_file() for file in files), f"{name}: none of {files} is there"
