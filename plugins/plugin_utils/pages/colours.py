# SPDX-License-Identifier: GPL-3.0-or-later
"""Choose colours that people with and without colour blindness can distinguish."""

import functools
import math
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

Triple = tuple[float, float, float]

# Lightness of OKLCH that stands out on white and on black paper.
LIGHTNESS = (0.40, 0.50, 0.60, 0.70, 0.80, 0.88)
CHROMA = 0.13
# Hues to try within a family's range.
HUE_STEPS = 13

# Linear sRGB as seen without red and without green cones: Machado, Oliveira and Fernandes 2009, severity 1.0.
_VISIONS = (
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
)
# OKLab from and to linear sRGB: Ottosson 2020.
_FROM_LAB = (
    (1.0, 0.3963377774, 0.2158037573),
    (1.0, -0.1055613458, -0.0638541728),
    (1.0, -0.0894841775, -1.2914855480),
)
_TO_RGB = (
    (4.0767416621, -3.3077115913, 0.2309699292),
    (-1.2684380046, 2.6097574011, -0.3413193965),
    (-0.0041960863, -0.7034186147, 1.7076147010),
)
_FROM_RGB = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB = ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
           (0.0259040371, 0.7827717662, -0.8086757660))  # fmt: skip


@dataclass(frozen=True)
class Colour:
    """A colour of OKLCH; ``hue`` in degrees, None for grey."""

    light: float
    hue: int | None = None


def choose_colours(ranges: Mapping[str, tuple[int, int]], taken: Iterable[Colour] = ()) -> dict[str, Colour]:
    """Return a colour for each name, with a hue of its range, as far as possible from all others in every vision.

    The order of the names counts: the first ones get the colours that differ most. ``taken`` are colours that others
    have already.
    """
    chosen: dict[str, Colour] = {}
    others = list(taken)
    for name, (low, high) in ranges.items():
        hues = [round(low + (high - low) * step / (HUE_STEPS - 1)) for step in range(HUE_STEPS)]
        candidates = [Colour(light, hue) for light in LIGHTNESS for hue in hues]
        chosen[name] = max(candidates, key=lambda colour: min((distance(colour, other) for other in others), default=1))
        others.append(chosen[name])
    return chosen


def distance(one: Colour, other: Colour) -> float:
    """Return the distance of two colours for the vision that sees it least; about 0.02 is just noticeable."""
    return min(math.dist(left, right) for left, right in zip(_seen(one), _seen(other)))


@functools.lru_cache(maxsize=None)
def _seen(colour: Colour) -> tuple[Triple, ...]:
    """Return a colour as OKLab in each vision."""
    chroma, angle = (0.0, 0.0) if colour.hue is None else (CHROMA, math.radians(colour.hue))
    roots = _times(_FROM_LAB, (colour.light, chroma * math.cos(angle), chroma * math.sin(angle)))
    rgb = _times(_TO_RGB, [root**3 for root in roots])
    # A colour that a screen cannot show becomes the nearest one that it can.
    shown = [min(1.0, max(0.0, value)) for value in rgb]
    return tuple(_as_lab([min(1.0, max(0.0, value)) for value in _times(vision, shown)]) for vision in _VISIONS)


def _as_lab(rgb: Sequence[float]) -> Triple:
    return _times(_TO_LAB, [value ** (1 / 3) for value in _times(_FROM_RGB, rgb)])


def _times(matrix: Sequence[Triple], vector: Sequence[float]) -> Triple:
    first, second, third = (sum(left * right for left, right in zip(row, vector)) for row in matrix)
    return first, second, third
