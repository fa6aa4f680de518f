# SPDX-License-Identifier: GPL-3.0-or-later
"""The goal of a tune: the figure to improve, the number of concurrent requests, and the limits that must hold."""

from dataclasses import dataclass
from typing import Any, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from .variants import TuneError

# The figures of a measurement, and their titles. For the first one more is better, for the others less.
THROUGHPUT, START = "output_tokens_per_second", "start_seconds"
TITLES = {
    THROUGHPUT: "output tokens/s",
    "ttft_ms": "TTFT ms",
    "tpot_ms": "TPOT ms",
    "itl_p99_ms": "ITL p99 ms",
    "joules_per_token": "J/token",
    START: "start s",
}
METRICS = tuple(TITLES)
KEYS = ("metric", "workload", "concurrency", "limits")

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Goal:
    """``metric`` should be as good as possible, while each figure in ``limits`` keeps its limit."""

    metric: str
    workload: str
    concurrency: int
    limits: Mapping[str, float]

    def describe(self) -> str:
        """Return the goal as a clause."""
        limits = [
            f"{TITLES[name]} {'at least' if more_is_better(name) else 'at most'} {limit:g}"
            for name, limit in self.limits.items()
        ]
        aim = f"{'highest' if more_is_better(self.metric) else 'lowest'} {TITLES[self.metric]}"
        return ", ".join([f"{aim} with {self.concurrency} requests of {self.workload} at a time", *limits])


def parse_goal(goal: Any) -> Goal:
    """Return a checked goal. Raises TuneError."""
    if not isinstance(goal, Mapping) or not goal:
        raise TuneError(
            f"tune_goal: found {show_value(goal)}, expected a mapping such as {{metric: {THROUGHPUT}, concurrency: 64}}"
        )
    for key in goal:
        if key not in KEYS:
            raise TuneError(f"tune_goal: unknown key {show_value(key)}; {nearest(str(key), KEYS)}")
    for key in ("metric", "concurrency"):
        if key not in goal:
            raise TuneError(f"tune_goal.{key} is missing")
    _check_metric("tune_goal.metric", goal["metric"])
    limits = goal.get("limits") or {}
    if not isinstance(limits, Mapping):
        raise TuneError(f"tune_goal.limits: found {show_value(limits)}, expected a mapping of figures to limits")
    for name, limit in limits.items():
        _check_metric("tune_goal.limits", name)
        if isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit <= 0:
            raise TuneError(f"tune_goal.limits.{name}: {not_a_number(limit, 'a number above 0')}")
    workload = goal.get("workload", "chat")
    if not isinstance(workload, str):
        raise TuneError(f"tune_goal.workload: found {show_value(workload)}, expected the name of a workload")
    return Goal(goal["metric"], workload, read_count("tune_goal.concurrency", goal["concurrency"]), dict(limits))


def _check_metric(where: str, name: Any) -> None:
    if name not in METRICS:
        raise TuneError(f"{where}: found {show_value(name)}; {nearest(str(name), METRICS)}")


def read_count(where: str, value: Any, least: int = 1) -> int:
    """Return a whole number, also from a text, because -e makes every value a text. Raises TuneError."""
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or int(text) < least:
        raise TuneError(f"{where}: found {show_value(value)}, expected a whole number from {least}")
    return int(text)


def more_is_better(metric: str) -> bool:
    """Return whether a larger figure is the better one."""
    return metric == THROUGHPUT


def better(metric: str, one: float, other: float) -> bool:
    """Return whether one figure is better than another."""
    return one > other if more_is_better(metric) else one < other


def worse_by(metric: str, one: float, other: float) -> float:
    """Return by which share of ``other`` a figure is worse than it; below 0 where it is better."""
    if not other:
        return 0.0
    return (other - one) / other if more_is_better(metric) else (one - other) / other
