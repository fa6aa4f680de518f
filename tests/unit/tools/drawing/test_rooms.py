# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of the rooms: complete, current and independent of any outside file."""

from __future__ import annotations

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
