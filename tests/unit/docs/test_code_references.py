# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages name code as `file.py::name`; each such file has that function, class or method."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import tomllib

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
def test_the_map_has_every_room_on_its_floor_with_the_file_to_start_at(tree):
    """A room is new or has moved: give it a row in plugins/README.md, where its floor in pyproject.toml is."""
    text = (TOP / "plugins/README.md").read_text(encoding="utf-8")
    (table,) = re.findall(rf"\(`{tree}/`\)[^\n]*:\n\n(.*?)\n\n", text, re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    shown = [
        (int(floor), name, files) for floor, names, _about, files in rows for name in re.findall(r"`(\w+)`", names)
    ]
    numbers = [floor for floor, _name, _files in shown]
    assert numbers == sorted(numbers, reverse=True)
    assert {name: floor for floor, name, _files in shown} == floors_of(tree)
    for _floor, name, files in shown:
        paths = [TOP / "plugins" / tree / name / file for file in re.findall(r"`([\w.]+)`", files)]
        assert any(path.is_file() for path in paths), f"{name}: {files} is not there"


def floors_of(tree):
    """Return the number of the floor of each room that has files, counted from below."""
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (entry["layers"] for entry in contracts if entry.get("containers", [""])[0].endswith(f".{tree}"))
    floors = {
        room.strip(" ()"): number for number, floor in enumerate(reversed(layers), 1) for room in floor.split("|")
    }
    return {room: floor for room, floor in floors.items() if any((TOP / "plugins" / tree / room).glob("*.py"))}
