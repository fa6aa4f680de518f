# SPDX-License-Identifier: GPL-3.0-or-later
"""Which measurement a tune takes next, and which variants it drops: A B C, A B C, until every round is complete.

All decisions follow from the existing figures, so that an interrupted tune can continue.
"""

import statistics
from dataclasses import dataclass, field
from typing import Mapping, NamedTuple, Sequence

from .goal import TITLES, Figures, Goal, better, more_is_better, worse_by
from .variants import CURRENT


class Step(NamedTuple):
    """The next measurement: a variant, and its round from 1."""

    variant: str
    round: int


@dataclass(frozen=True)
class Taken:
    """The present results of a tune: by variant the figures of its rounds, and why a variant failed.

    ``rounds`` maps a variant to its figures by the number of the round.
    """

    rounds: Mapping[str, Mapping[int, Figures]] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def values(self, variant: str, metric: str, last: int) -> list[float]:
        """Return the figures of a variant up to a round, without rounds that lack it."""
        found = self.rounds.get(variant, {})
        return [found[number][metric] for number in sorted(found) if number <= last and metric in found[number]]


# Equal runs on one machine differed by up to this share (tests/gpu/results). It stands for the noise of a variant of
# which there is one run alone.
NOISE = 0.35


@dataclass(frozen=True)
class Rules:
    """The rules of a tune: the number of rounds, and the share by which a variant must be worse to be dropped.

    The share is a lower bound: the noise of the runs counts where it is larger, see `_noise`.
    """

    rounds: int = 3
    margin: float = 0.1


def next_step(variants: Sequence[str], taken: Taken, goal: Goal, rules: Rules) -> Step | None:
    """Return the next measurement, None when all are taken."""
    for number in range(1, rules.rounds + 1):
        out = dropped(variants, taken, goal, rules, number - 1)
        for variant in variants:
            if variant not in out and number not in taken.rounds.get(variant, {}):
                return Step(variant, number)
    return None


def dropped(variants: Sequence[str], taken: Taken, goal: Goal, rules: Rules, last: int) -> dict[str, str]:
    """Return the variants that are not measured after round ``last``, and why.

    A variant that failed is dropped at once. After each round a variant is dropped whose best run is worse than the
    worst run of the leader, or misses a limit, by more than the margin and by more than the runs of either differ among
    themselves. CURRENT is never dropped, because the others are compared with it.
    """
    out = {variant: why for variant, why in taken.failures.items() if variant in variants}
    for number in range(1, last + 1):
        racing = [variant for variant in variants if variant not in out]
        lead = leader(racing, taken, goal, number)
        for variant in racing:
            why = _missed(variant, taken, goal, rules, number) or _behind(variant, lead, taken, goal, rules, number)
            if why and variant != CURRENT:
                out[variant] = f"dropped after round {number}: {why}"
    return out


def leader(variants: Sequence[str], taken: Taken, goal: Goal, last: int) -> str | None:
    """Return the variant with the best median among those whose medians keep the limits, None without any."""
    best: tuple[str, float] | None = None
    for variant in variants:
        values = taken.values(variant, goal.metric, last)
        if values and not missed_limits(variant, taken, goal, last):
            median = statistics.median(values)
            if best is None or better(goal.metric, median, best[1]):
                best = (variant, median)
    return best[0] if best else None


def missed_limits(variant: str, taken: Taken, goal: Goal, last: int) -> list[str]:
    """Return the limits that the median of a variant misses, as clauses; an unknown figure misses its limit."""
    found = []
    for name, limit in goal.limits.items():
        values = taken.values(variant, name, last)
        if not values:
            found.append(f"{TITLES[name]} is not known")
        elif better(name, limit, statistics.median(values)):
            found.append(f"{TITLES[name]} {statistics.median(values):,.1f}, limit {limit:g}")
    return found


def _missed(variant: str, taken: Taken, goal: Goal, rules: Rules, last: int) -> str:
    for name, limit in goal.limits.items():
        values = taken.values(variant, name, last)
        if values and worse_by(name, best_of(name, values), limit) > max(rules.margin, _noise(name, values)):
            return f"{TITLES[name]} {best_of(name, values):,.1f} at best, limit {limit:g}"
    return ""


def _behind(variant: str, lead: str | None, taken: Taken, goal: Goal, rules: Rules, last: int) -> str:
    values = taken.values(variant, goal.metric, last)
    if lead in (None, variant) or not values:
        return ""
    others = taken.values(str(lead), goal.metric, last)
    worst = worst_of(goal.metric, others)
    best = best_of(goal.metric, values)
    noise = max(_noise(goal.metric, values), _noise(goal.metric, others))
    if worse_by(goal.metric, best, worst) <= max(rules.margin, noise):
        return ""
    return f"{best:,.1f} {TITLES[goal.metric]} at best, {lead} has {worst:,.1f} at worst"


def _noise(metric: str, values: Sequence[float]) -> float:
    """Return the share by which runs of one variant differ; that of one run is not known, and assumed to be NOISE."""
    return worse_by(metric, worst_of(metric, values), best_of(metric, values)) if len(values) > 1 else NOISE


def best_of(metric: str, values: Sequence[float]) -> float:
    """Return the best of figures; there must be at least one."""
    return max(values) if more_is_better(metric) else min(values)


def worst_of(metric: str, values: Sequence[float]) -> float:
    """Return the worst of figures; there must be at least one."""
    return min(values) if more_is_better(metric) else max(values)
