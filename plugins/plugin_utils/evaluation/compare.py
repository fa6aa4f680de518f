# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one run answers worse than another on the same questions: McNemar's exact test, and its power."""

import math
from dataclasses import dataclass
from typing import Any, Mapping

from ...module_utils.common.kinds import show_value
from .tasks import EvaluationError

SIGNIFICANCE = 0.05
# The settings that must be equal in two runs that are compared.
SETTINGS = ("task", "tool", "definition_sha256", "data_sha256", "limit", "request")
# The variables that decide some of them, for messages.
VARIABLES = {
    "tool": "evaluate_tool",
    "limit": "evaluate_samples",
    "request": "evaluate_request",
    "data_sha256": "sha256 of evaluate_data",
}


@dataclass(frozen=True)
class Comparison:
    """Two runs over the same questions.

    lost: right before and wrong now; gained: wrong before and right now; p: two-sided, of McNemar's exact test.
    """

    samples: int
    before: float
    now: float
    lost: int
    gained: int
    p: float

    @property
    def verdict(self) -> str:
        """Return ``worse``, ``better``, or ``no difference found``."""
        if self.p >= SIGNIFICANCE:
            return "no difference found"
        return "worse" if self.lost > self.gained else "better"

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "samples": self.samples,
            "score_before": round(self.before, 6),
            "score": round(self.now, 6),
            "lost": self.lost,
            "gained": self.gained,
            "p": self.p,
            "verdict": self.verdict,
        }


def mcnemar(lost: int, gained: int) -> float:
    """Return the two-sided p of McNemar's exact test: the probability of so uneven a split if neither run is better."""
    total = lost + gained
    if not total:
        return 1.0
    tail, term = 0, 1
    for index in range(min(lost, gained) + 1):
        tail += term
        term = term * (total - index) // (index + 1)
    # Whole numbers as long as possible: 2 ** total does not fit into a float.
    return min(1.0, (2 * tail) / (1 << total))


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> Comparison:
    """Return the comparison of two results of one task; raises EvaluationError where they asked different questions."""
    check_comparable(before, now)
    then = {item["id"]: item["correct"] for item in before["items"]}
    after = {item["id"]: item["correct"] for item in now["items"]}
    if then.keys() != after.keys():
        different = sorted(then.keys() ^ after.keys())
        raise EvaluationError(f"{now['task']}: only one of the runs has the question {different[0]!r}")
    lost = sum(then[name] and not after[name] for name in after)
    gained = sum(after[name] and not then[name] for name in after)
    size = len(after)
    return Comparison(size, sum(then.values()) / size, sum(after.values()) / size, lost, gained, mcnemar(lost, gained))


def check_comparable(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise EvaluationError for the first setting in which two runs of a task differ."""
    for key in SETTINGS:
        if before.get(key) != now.get(key):
            found = f"{now['task']}: {VARIABLES.get(key, key)}: found {show_value(now.get(key))}"
            raise EvaluationError(
                f"{found}, but the run to compare with has {show_value(before.get(key))}; only runs with the same "
                "questions and settings can be compared"
            )


def power(samples: int, loss: float, gain: float) -> float:
    """Return the probability that compare calls a run worse.

    ``loss`` and ``gain`` are the shares of questions that become wrong and right; a loss of 5 points is a difference of
    0.05 between them. Answers differ between two runs of one model too, so gain is rarely 0. Raises ValueError where
    both shares are more than 1 together.
    """
    share = loss + gain
    if share > 1 + 1e-9:
        raise ValueError(f"loss {loss} and gain {gain} are more than all questions")
    share = min(share, 1.0)
    if share <= 0:
        return 0.0
    found = 0.0
    for total in range(samples + 1):
        weight = _binomial(samples, total, share)
        if weight < 1e-12:
            continue
        most = _most_gained(total)
        if most >= 0:
            found += weight * sum(_binomial(total, gained, gain / share) for gained in range(most + 1))
    return found


def _most_gained(total: int) -> int:
    """Return the largest number of gains among ``total`` changed answers that still counts as worse, -1 for none."""
    tail, term = 0, 1
    for gained in range(total // 2 + 1):
        tail += term
        # p = 2 * tail / 2 ** total, compared with SIGNIFICANCE in whole numbers.
        if 2 * tail * 20 >= 1 << total:
            return gained - 1
        term = term * (total - gained) // (gained + 1)
    return total // 2


def _binomial(count: int, hits: int, share: float) -> float:
    if share in (0.0, 1.0):
        return float(hits == count * share)
    logarithm = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
    return math.exp(logarithm + hits * math.log(share) + (count - hits) * math.log1p(-share))
