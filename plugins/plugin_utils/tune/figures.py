# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of one measurement that a goal or a limit can name."""

from typing import Any, Mapping

from ..bench.summary import FIGURES as RESULT_KEYS
from ..bench.summary import JOULES, joules_per_token
from .goal import START


def figures_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a record by name, those that are not known left out."""
    found = {name: float(record["result"][key]) for name, (key, _digits) in RESULT_KEYS.items()}
    joules, seconds = joules_per_token(record), record.get(START)
    if joules is not None:
        found[JOULES] = joules
    if seconds:
        found[START] = float(seconds)
    return found
