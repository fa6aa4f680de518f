# SPDX-License-Identifier: GPL-3.0-or-later
"""The text report of an evaluation: a table of scores, and of the comparison with an earlier run."""

from typing import Any, Mapping, Sequence

from ..common.tables import table
from .compare import Comparison, power
from .results import interval

WIDTH = 120
LOSS = 0.05
# From this number of questions on, a loss of 5 points is found whatever else changes.
_ENOUGH = 5000
_HEADERS = ("instance", "task", "questions", "right", "95 %", "unreadable", "before", "lost", "gained", "p", "verdict")


def report(results: Sequence[Mapping[str, Any]], comparisons: Mapping[tuple[str, str], Comparison]) -> str:
    """Return the table of a host's results; ``comparisons`` are by instance and task."""
    rows = [_row(result, comparisons.get((result["instance"], result["task"]))) for result in results]
    notes = [_note(result, comparisons.get((result["instance"], result["task"]))) for result in results]
    return "\n".join([table(_HEADERS, rows, WIDTH), *filter(None, notes)])


def _row(result: Mapping[str, Any], compared: Comparison | None) -> list[str]:
    low, high = interval(result["score"], result["samples"])
    row = [
        result["instance"],
        result["task"],
        str(result["samples"]),
        percent(result["score"]),
        f"{100 * low:.1f} to {100 * high:.1f}",
        str(result["unreadable"]) if result["unreadable"] else "",
    ]
    if compared is None:
        return [*row, "", "", "", "", ""]
    return [
        *row,
        percent(compared.before),
        str(compared.lost),
        str(compared.gained),
        f"{compared.p:.4f}",
        compared.verdict,
    ]


def _note(result: Mapping[str, Any], compared: Comparison | None) -> str:
    if result["task"] == "made":
        return (
            "made: the questions are made by a script; a score proves that the evaluation works, nothing about a model"
        )
    if compared is None or compared.verdict != "no difference found" or compared.samples > _ENOUGH:
        return ""
    # As many answers as changed for the better here change by chance in the next run too. Where nearly every answer
    # changed, both shares together must stay below 1.
    gain = min(compared.gained / compared.samples, (1 - LOSS) / 2)
    chance = power(compared.samples, gain + LOSS, gain)
    size = compared.samples
    return f"{result['task']}: with these {size} questions a loss of 5 points is found in {100 * chance:.0f} % of runs"


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.1f} %"
