# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a tune: which variant is proposed, and a table of all of them."""

import statistics
from dataclasses import dataclass
from typing import Any, Sequence

from ..common.tables import table, wrapped
from .goal import METRICS, TITLES, Goal, better
from .schedule import Rules, Taken, best_of, dropped, leader, missed_limits, worst_of
from .variants import CURRENT

WIDTH = 120
# Columns of the table for every goal; the others only where the goal names them.
USUAL = ("output_tokens_per_second", "ttft_ms", "itl_p99_ms", "joules_per_token", "start_seconds")


@dataclass(frozen=True)
class Choice:
    """The outcome: ``winner`` is the best variant, None if none keeps the limits; ``proposed`` is true if it should
    replace the current settings; ``reason`` is the sentence for people."""

    winner: str | None
    proposed: bool
    reason: str


def choose(variants: Sequence[str], taken: Taken, goal: Goal, rules: Rules) -> Choice:
    """Return the best of the variants that completed all rounds.

    It is proposed if each of its runs is better than every run of CURRENT, so that the spread does not explain the
    difference, or if CURRENT misses a limit.
    """
    complete = complete_variants(variants, taken, goal, rules)
    winner = leader(complete, taken, goal, rules.rounds)
    if winner is None:
        return Choice(None, False, "no variant keeps the limits of tune_goal; nothing is proposed")
    if winner == CURRENT:
        return Choice(CURRENT, False, "no variant is better than the unchanged instance; nothing is proposed")
    values, before = (taken.values(name, goal.metric, rules.rounds) for name in (winner, CURRENT))
    comparison = f"{statistics.median(values):,.1f} instead of {statistics.median(before):,.1f} {TITLES[goal.metric]}"
    missed = missed_limits(CURRENT, taken, goal, rules.rounds)
    if missed:
        return Choice(
            winner, True, f"{winner}: {comparison}; the unchanged instance misses a limit ({', '.join(missed)})"
        )
    if not better(goal.metric, worst_of(goal.metric, values), best_of(goal.metric, before)):
        why = "the runs of both overlap, so the difference may be chance; nothing is proposed"
        return Choice(winner, False, f"{winner}: {comparison}, but {why}")
    return Choice(winner, True, f"{winner}: {comparison}, in every run")


def complete_variants(variants: Sequence[str], taken: Taken, goal: Goal, rules: Rules) -> list[str]:
    """Return the variants that were measured in all rounds."""
    out = dropped(variants, taken, goal, rules, rules.rounds - 1)
    numbers = set(range(1, rules.rounds + 1))
    return [name for name in variants if name not in out and numbers <= set(taken.rounds.get(name, {}))]


def rows(variants: Sequence[str], taken: Taken, goal: Goal, rules: Rules) -> list[dict[str, Any]]:
    """Return a row for each variant: its runs, the spread of each figure, and why it was dropped."""
    out = dropped(variants, taken, goal, rules, rules.rounds)
    found = []
    for name in variants:
        figures = {}
        for metric in METRICS:
            values = taken.values(name, metric, rules.rounds)
            if values:
                figures[metric] = {
                    "median": round(statistics.median(values), 3), "lowest": min(values), "highest": max(values)
                }  # fmt: skip
        missed = [] if name in out or not figures else missed_limits(name, taken, goal, rules.rounds)
        outcome = out.get(name, "") or (f"misses {', '.join(missed)}" if missed else "")
        found.append({"variant": name, "runs": len(taken.rounds.get(name, {})), "figures": figures, "outcome": outcome})
    return found


def result_table(found: Sequence[dict[str, Any]], goal: Goal, choice: Choice) -> str:
    """Return the rows as text with the goal above and the choice below, at most WIDTH columns wide."""
    metrics = [metric for metric in METRICS if metric in (*USUAL, goal.metric, *goal.limits)]
    headers = ("variant", "runs", *[TITLES[metric] for metric in metrics], "outcome")
    cells = [
        [row["variant"], str(row["runs"]), *[_spread(row["figures"].get(metric)) for metric in metrics], row["outcome"]]
        for row in found
    ]
    goal_line = wrapped(f"Goal: {goal.describe()}", WIDTH, further="  ")
    return "\n\n".join(
        [goal_line, table(headers, cells, WIDTH), wrapped(f"Result: {choice.reason}", WIDTH, further="  ")]
    )


def _spread(figure: dict[str, float] | None) -> str:
    if figure is None:
        return ""
    low, median, high = (f"{figure[key]:,.{0 if figure['median'] >= 1000 else 3 if figure['median'] < 1 else 1}f}"
                         for key in ("lowest", "median", "highest"))  # fmt: skip
    return median if low == high else f"{median} [{low}-{high}]"
