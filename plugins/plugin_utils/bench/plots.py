# SPDX-License-Identifier: GPL-3.0-or-later
"""Line charts as SVG: medians over the concurrency, with bars from the lowest to the highest value."""

import html
import math
from dataclasses import dataclass
from typing import Mapping, Sequence

WIDTH, HEIGHT = 340, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 12, 34
TICKS = 4


@dataclass(frozen=True)
class Series:
    """A line of a chart; ``points`` are by concurrency, each with median, lowest and highest."""

    label: str
    points: Mapping[int, Mapping[str, float]]


def line_chart(title: str, unit: str, series: Sequence[Series]) -> str:
    """Return a figure with the chart; the concurrency steps are equally far apart, the other axis begins at 0."""
    steps = sorted({step for line in series for step in line.points})
    top = nice_top(max((point["highest"] for line in series for point in line.points.values()), default=1.0))
    columns = {step: _column(number, len(steps)) for number, step in enumerate(steps)}
    parts = [*_grid(top), *(_step_label(step, column) for step, column in columns.items())]
    for number, line in enumerate(series):
        parts += _line(line, f"s{number}", columns, top, unit)
    body = "".join(parts)
    caption = html.escape(f"{title} ({unit})")
    return (
        f'<figure><figcaption>{caption}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{caption}">{body}</svg></figure>'
    )


def nice_top(highest: float) -> float:
    """Return the end of an axis: at least the highest value, and 1, 2, 2.5 or 5 times a power of ten for each tick."""
    if highest <= 0:
        return 1.0
    raw = highest / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return TICKS * power * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999999)


def tick_text(value: float) -> str:
    """Return the label of a tick."""
    if value >= 10000:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


def _column(number: int, count: int) -> float:
    width = WIDTH - LEFT - RIGHT
    return LEFT + width / 2 if count == 1 else LEFT + 14 + (width - 28) * number / (count - 1)


def _row(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top


def _grid(top: float) -> list[str]:
    parts = []
    for number in range(TICKS + 1):
        value = top * number / TICKS
        row = _row(value, top)
        parts.append(f'<path class="grid" d="M{LEFT} {row:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{row + 4:.1f}">{tick_text(value)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, f'<text class="x" x="{middle:g}" y="{HEIGHT - 3}">requests at a time</text>']


def _step_label(step: int, column: float) -> str:
    return f'<text class="x" x="{column:.1f}" y="{HEIGHT - BOTTOM + 15}">{html.escape(str(step))}</text>'


def _line(line: Series, name: str, columns: Mapping[int, float], top: float, unit: str) -> list[str]:
    points = sorted(line.points.items())
    way = " ".join(f"{columns[step]:.1f},{_row(point['median'], top):.1f}" for step, point in points)
    parts = [f'<polyline class="{name}" points="{way}"/>']
    for step, point in points:
        low, high = _row(point["lowest"], top), _row(point["highest"], top)
        text = (
            f"{line.label}, {step} at a time: {point['median']:,g} {unit} "
            f"({point['lowest']:,g} to {point['highest']:,g})"
        )
        parts.append(f'<path class="{name}" d="M{columns[step]:.1f} {low:.1f}V{high:.1f}"/>')
        parts.append(
            f'<circle class="{name}" cx="{columns[step]:.1f}" cy="{_row(point["median"], top):.1f}" r="3.5">'
            f"<title>{html.escape(text)}</title></circle>"
        )
    return parts
