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


def test_a_way_round_replaces_a_direct_arrow() -> None:
    pairs = {("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")}

    assert rooms.reduce_arrows(pairs) == [("a", "b"), ("a", "d"), ("b", "c")]


def test_the_drawing_is_readable_in_light_and_dark_and_needs_no_other_file(picture: str) -> None:
    assert "prefers-color-scheme: dark" in picture
    assert "href" not in picture
    assert picture.count("http") == 1, "only the name of the SVG format itself"


@pytest.mark.parametrize("tree", rooms.TREES)
def test_no_two_boxes_overlap(tree: str) -> None:
    places, _end = rooms.place_rooms(rooms.read_floors()[tree], 0)
    close = [
        (one, other)
        for (one, (x1, y1)), (other, (x2, y2)) in itertools.combinations(places.items(), 2)
        if abs(x1 - x2) < rooms.BOX and abs(y1 - y2) < rooms.HEIGHT
    ]
    assert len(places) > 20 and close == []


def test_every_text_of_a_box_is_inside_of_it(picture: str) -> None:
    boxes = [int(y) for y in re.findall(r'<rect class="room" [^>]*y="(\d+)"', picture)]
    texts = [int(y) for y in re.findall(r'<text [^>]*y="(\d+)" class="small"', picture)]
    outside = [y for y in texts if not any(0 < y - top < rooms.HEIGHT for top in boxes)]
    assert texts and outside == []
