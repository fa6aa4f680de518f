#!/usr/bin/env python
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the rooms of plugins/ on their floors, each with the rooms that it imports: docs/images/rooms.svg.

The floors come from the layers in pyproject.toml, the names in a box from the imports in the code. There are no arrows:
83 of them crossed, and half ran behind boxes. A name that follows from two others is left out.

    tools/drawing/rooms.py            # write docs/images/rooms.svg
"""

from __future__ import annotations

import argparse
import ast
import html
import itertools
import textwrap
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/rooms.svg"
TREES = {
    "plugin_utils": ("plugins/plugin_utils: the controller runs it", "action, inventory, filter and callback plugins"),
    "module_utils": ("plugins/module_utils: a managed host may run it", "modules, and the controller's rooms above"),
}
WIDTH, BOX, LINE = 900, 138, 11
# The name of a room and the space around it; then a line for about 25 letters of names.
HEAD, LETTERS = 26, 25
# A floor with more rooms takes several rows, so that no two boxes overlap. Below a row, and below a floor:
IN_A_ROW, BELOW_ROW, BELOW_FLOOR = 6, 8, 22

STYLE = """
  svg { font-family: system-ui, sans-serif; }
  .tree { fill: #f6f8fa; stroke: #d0d7de; }
  .room { fill: #ffffff; stroke: #57606a; }
  .users { fill: #ddf4ff; stroke: #0969da; }
  text { fill: #1f2328; text-anchor: middle; font-size: 12.5px; }
  .title { text-anchor: start; font-weight: 600; font-size: 15px; }
  .small { font-size: 9.5px; fill: #59636e; }
  .host { font-size: 9.5px; fill: #0969da; }
  @media (prefers-color-scheme: dark) {
    .tree { fill: #151b23; stroke: #3d444d; }
    .room { fill: #0d1117; stroke: #9198a1; }
    .users { fill: #121d2f; stroke: #4493f8; }
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .host { fill: #4493f8; }
  }
"""


def read_floors() -> dict[str, list[list[str]]]:
    """The rooms of each tree, floor by floor from the top, as the import contracts name them."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    trees = {
        contract["containers"][0].rsplit(".", 1)[1]: contract["layers"]
        for contract in tools["importlinter"]["contracts"]
        if contract["type"] == "layers"
    }
    standing = {tree: [_standing(tree, floor) for floor in floors] for tree, floors in trees.items()}
    return {tree: [floor for floor in floors if floor] for tree, floors in standing.items()}


def _standing(tree: str, floor: str) -> list[str]:
    """The rooms of a floor that have files: a contract may name a room in brackets before it exists."""
    rooms = [room.strip(" ()") for room in floor.split("|")]
    return [room for room in rooms if list((ROOT / "plugins" / tree / room).glob("*.py"))]


def read_imports() -> set[tuple[str, str]]:
    """Pairs of rooms, "tree.room", of which the first imports the second."""
    pairs = set()
    for tree in TREES:
        for file in (ROOT / "plugins" / tree).rglob("*.py"):
            package = file.relative_to(ROOT / "plugins").parts[:-1]
            room = f"{tree}.{file.relative_to(ROOT / 'plugins' / tree).parts[0]}"
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.level:
                    target = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
                    if len(target) > 1:
                        pairs.add((room, ".".join(target[:2])))
    return {(user, used) for user, used in pairs if user != used}


def reduce_imports(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs that do not follow from others: a -> c is dropped when there is a way a -> b -> ... -> c."""
    reach = set(pairs)
    while more := {(a, d) for (a, b), (c, d) in itertools.product(reach, reach) if b == c} - reach:
        reach |= more
    rooms = {room for pair in pairs for room in pair}
    return sorted((a, c) for a, c in pairs if not any((a, b) in reach and (b, c) in reach for b in rooms - {a, c}))


def texts_of(tree: str, pairs: set[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """What stands in each room's box below its name: lines with their class of the style."""
    own = reduce_imports({(a, b) for a, b in pairs if a.startswith(tree) and b.startswith(tree)})
    texts = {}
    for room in {pair[0] for pair in pairs if pair[0].startswith(tree)}:
        here = [b.split(".")[1] for a, b in own if a == room]
        hosts = {b.split(".")[1] for a, b in pairs if a == room and not b.startswith(tree)} - {"common"}
        texts[room.split(".")[1]] = _lines(here, "small") + _lines(sorted(hosts), "host")
    return texts


def _lines(names: list[str], kind: str) -> list[tuple[str, str]]:
    return [(line, kind) for line in textwrap.wrap("\u2193 " + ", ".join(names), LETTERS)] if names else []


def draw_text(x: int, y: int, words: str, kind: str = "") -> str:
    """One line of text; `kind` is a class of the style."""
    return f'<text x="{x}" y="{y}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{html.escape(words)}</text>'


def place_rooms(
    floors: list[list[str]], texts: dict[str, list[tuple[str, str]]], top: int
) -> tuple[dict[str, tuple[int, int, int]], int]:
    """The middle and the upper edge of each room's box with its height, and the height below the last floor."""
    places = {}
    for floor in floors:
        rows = -(-len(floor) // IN_A_ROW)
        longest = -(-len(floor) // rows)
        for row in (floor[start : start + longest] for start in range(0, len(floor), longest)):
            height = HEAD + LINE * max(len(texts.get(room, [])) for room in row)
            pitch = (WIDTH - 48) // len(row)
            for place, room in enumerate(row):
                places[room] = (24 + pitch * place + pitch // 2, top, height)
            top += height + BELOW_ROW
        top += BELOW_FLOOR - BELOW_ROW
    return places, top


def draw_tree(tree: str, floors: list[list[str]], pairs: set[tuple[str, str]], top: int) -> tuple[list[str], int]:
    """The lines of one tree's drawing and the height at which it ends."""
    title, users = TREES[tree]
    texts = texts_of(tree, pairs)
    places, end = place_rooms(floors, texts, top + 84)
    lines = [f'<rect class="tree" x="8" y="{top}" width="{WIDTH - 16}" height="{end - top}" rx="10"/>']
    lines += [draw_text(24, top + 26, title, "title")]
    lines += [f'<rect class="users" x="24" y="{top + 40}" width="{WIDTH - 48}" height="28" rx="6"/>']
    lines += [draw_text(WIDTH // 2, top + 58, users)]
    for room, (x, y, height) in places.items():
        lines += [f'<rect class="room" x="{x - BOX // 2}" y="{y}" width="{BOX}" height="{height}" rx="6"/>']
        lines += [draw_text(x, y + 16, room)]
        small = enumerate(texts.get(room, []))
        lines += [draw_text(x, y + 28 + LINE * number, words, kind) for number, (words, kind) in small]
    return lines, end


def draw() -> str:
    """The whole picture."""
    floors, pairs = read_floors(), read_imports()
    upper, end = draw_tree("plugin_utils", floors["plugin_utils"], pairs, 8)
    lower, bottom = draw_tree("module_utils", floors["module_utils"], pairs, end + 40)
    note = "A room imports only from floors below it: \u2193 names these rooms, in blue those of the hosts."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 8}" role="img">',
            "<title>The rooms of plugins/ and the imports between them</title>",
            f"<style>{STYLE}</style>",
            *upper,
            draw_text(WIDTH // 2, end + 25, note),
            *lower,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PICTURE.write_text(draw(), encoding="utf-8")
    print(f"Written: {PICTURE.relative_to(ROOT)}")
