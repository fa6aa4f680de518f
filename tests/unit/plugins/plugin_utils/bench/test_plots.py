# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.bench.plots import (
    Series,
    line_chart,
    nice_top,
    tick_text,
)

POINT = {"median": 50.0, "lowest": 40.0, "highest": 80.0}


@pytest.mark.parametrize(
    ("highest", "top"), [(80, 80), (81, 100), (9029, 10000), (0.31, 0.4), (3, 4), (0, 1), (4.1, 8)]
)
def test_an_axis_ends_at_a_round_number(highest, top):
    assert nice_top(highest) == pytest.approx(top)


def test_ticks_are_short():
    assert [tick_text(value) for value in (0, 0.05, 7500, 12500, 10000)] == ["0", "0.05", "7500", "12.5k", "10k"]


def drawn(*series):
    return ET.fromstring(line_chart("Output <", "tok/s", series))


def test_a_line_has_its_points_and_bars():
    figure = drawn(Series("a", {1: POINT, 8: {**POINT, "median": 80.0}, 64: POINT}))
    circles = figure.findall(".//circle")
    columns = [float(circle.get("cx")) for circle in circles]
    assert columns == sorted(columns) and len(circles) == 3
    # The top of the axis is 80: the middle point is at the upper end.
    assert float(circles[1].get("cy")) < float(circles[0].get("cy")) and circles[1].get("cy") == "12.0"
    assert circles[0].find("title").text == "a, 1 at a time: 50 tok/s (40 to 80)"
    assert len(figure.findall(".//path[@class='s0']")) == 3
    assert figure.find("figcaption").text == "Output < (tok/s)"


def test_two_lines_share_the_axes():
    figure = drawn(Series("a", {1: POINT}), Series("<b>", {1: {**POINT, "highest": 500.0}, 8: POINT}))
    labels = [text.text for text in figure.findall(".//text[@class='x']")]
    assert labels == ["requests at a time", "1", "8"]
    assert len(figure.findall(".//polyline")) == 2 and "800" in [text.text for text in figure.findall(".//text")]


def test_a_chart_without_points_is_no_error():
    assert drawn(Series("a", {})).find(".//circle") is None
