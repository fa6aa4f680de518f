# SPDX-License-Identifier: GPL-3.0-or-later
"""What the colour blind see of two colours, and which colours are chosen because of it."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.pages.colours import Colour, choose_colours, distance


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Cyan and grey, orange and green: what a fleet's page once gave to h200 and cpu, to mi300x and l40s.
        (Colour(0.59, 190), Colour(0.59)),
        (Colour(0.68, 45), Colour(0.68, 140)),
    ],
)
def test_hues_alone_do_not_tell_colours_apart(one, other):
    assert distance(one, other) < 0.03
    assert distance(one, Colour(0.88, other.hue)) > 0.1


def test_colours_keep_their_hues_and_differ():
    chosen = choose_colours({"a": (115, 215), "b": (115, 215), "c": (15, 75)}, [Colour(0.62)])
    assert [115 <= chosen[name].hue <= 215 for name in "ab"] == [True, True] and 15 <= chosen["c"].hue <= 75
    assert min(distance(chosen[one], chosen[other]) for one, other in ("ab", "ac", "bc")) > 0.1


def test_the_same_names_get_the_same_colours():
    ranges = dict.fromkeys("abcdef", (0, 90))
    assert choose_colours(ranges) == choose_colours(ranges)
    assert len(set(choose_colours(ranges).values())) == 6
