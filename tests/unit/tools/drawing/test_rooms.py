# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of the rooms: complete, current and independent of any outside file."""

from __future__ import annotations

import itertools
import re

import pytest

from tools.drawing import rooms


@pytest.fixture(scope="module")
def picture() -> str:
    return rooms.draw()


def test_the_committed_drawing_is_current(picture: str) -> None:
    """A room or an import has changed: run tools/drawing/rooms.py and commit docs/images/rooms.svg."""
    assert rooms.PICTURE.read_text(encoding="utf-8") == picture


def test_every_room_of_the_code_is_drawn(picture: str) -> None:
    for tree in rooms.TREES:
        for room in (rooms.ROOT / "plugins" / tree).iterdir():
            if room.is_dir() and any(room.glob("*.py")):
                assert f">{room.name}</text>" in picture


def test_a_way_round_replaces_a_direct_import() -> None:
    pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}

    assert rooms.reduce_imports(pairs) == [("a", "b"), ("a", "d"), ("b", "c")]


def test_the_drawing_is_readable_in_light_and_dark_and_needs_no_other_file(picture: str) -> None:
    assert "prefers-color-scheme: dark" in picture
    assert "href" not in picture
    assert picture.count("http") == 1, "only the name of the SVG format itself"


@pytest.mark.parametrize("tree", rooms.TREES)
def test_no_two_boxes_overlap(tree: str) -> None:
    texts = rooms.texts_of(tree, rooms.read_imports())
    places, _end = rooms.place_rooms(rooms.read_floors()[tree], texts, 0)
    close = [
        (one, other)
        for (one, (x1, y1, h1)), (other, (x2, y2, h2)) in itertools.combinations(places.items(), 2)
        if abs(x1 - x2) < rooms.BOX and y1 < y2 + h2 and y2 < y1 + h1
    ]
    assert len(places) > 20 and close == []


def test_every_text_of_a_box_is_inside_of_it(picture: str) -> None:
    box = r'<rect class="room" x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"'
    boxes = [tuple(map(int, found)) for found in re.findall(box, picture)]
    texts = re.findall(r'<text x="(\d+)" y="(\d+)" class="(?:small|host)">([^<]*)<', picture)
    outside = []
    for x, y, words in texts:
        # Half a pixel more than half of the font's size for each letter is more than any font here needs.
        half = 5.3 * len(words) / 2
        if not any(
            left <= int(x) - half and int(x) + half <= left + width and top < int(y) < top + height
            for left, top, width, height in boxes
        ):
            outside.append(words)
    assert len(texts) > 40 and outside == []


def test_a_box_names_every_import_or_a_room_through_which_it_follows(picture: str) -> None:
    pairs = rooms.read_imports()
    for tree in rooms.TREES:
        texts = rooms.texts_of(tree, pairs)
        named = {
            (f"{tree}.{room}", f"{tree}.{name}")
            for room, lines in texts.items()
            for name in re.findall(r"\w+", " ".join(words for words, kind in lines if kind == "small"))
        }
        reach = set(named)
        while more := {(a, d) for (a, b), (c, d) in itertools.product(reach, reach) if b == c} - reach:
            reach |= more
        assert {(a, b) for a, b in pairs if a.startswith(tree) and b.startswith(tree)} == reach & pairs
