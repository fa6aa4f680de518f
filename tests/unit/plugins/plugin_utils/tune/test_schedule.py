# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of measurements, and what is dropped, from made figures."""

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.goal import Goal
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.schedule import (
    Rules,
    Step,
    Taken,
    dropped,
    leader,
    next_step,
)

SPEED = "output_tokens_per_second"
NAMES = ["current", "b", "c"]
GOAL = Goal(SPEED, "chat", 64, {})
RULES = Rules(3, 0.1)


def taken(failures=(), **runs):
    """Return figures of which each variant has one run after the other: a number is its speed."""
    rounds = {
        name: {number: run if isinstance(run, dict) else {SPEED: float(run)} for number, run in enumerate(values, 1)}
        for name, values in runs.items()
    }
    return Taken(rounds, dict(failures))


def run_all(speeds, goal=GOAL, rules=RULES, names=(), fails=()):
    """Return the steps of a whole tune of variants that always have the same figures."""
    names = names or NAMES
    rounds, failures, steps = {name: {} for name in names}, {}, []
    while True:
        step = next_step(names, Taken(rounds, failures), goal, rules)
        if step is None:
            return steps
        assert len(steps) < 50
        steps.append(step)
        if step in fails:
            failures[step.variant] = "died"
        else:
            rounds[step.variant][step.round] = speeds[step.variant]


def test_variants_alternate_round_by_round():
    same = {name: {SPEED: 100.0} for name in NAMES}
    assert run_all(same) == [Step(name, number) for number in (1, 2, 3) for name in NAMES]


def test_a_hopeless_variant_is_measured_once():
    steps = run_all({"current": {SPEED: 100.0}, "b": {SPEED: 64.0}, "c": {SPEED: 66.0}})
    assert [step.variant for step in steps].count("b") == 1
    # The noise of one run is not known: two equal ones show that it is small.
    assert [step.variant for step in steps].count("c") == 2


def test_a_variant_that_is_worse_by_less_than_the_margin_is_measured_to_the_end():
    steps = run_all({"current": {SPEED: 100.0}, "b": {SPEED: 89.0}, "c": {SPEED: 91.0}})
    assert [step.variant for step in steps].count("b") == 2
    assert [step.variant for step in steps].count("c") == 3


def test_runs_that_differ_much_drop_nothing_that_differs_less():
    names = ["current", "b"]
    found = {"current": [130, 100], "b": [86, 85]}
    assert dropped(names, taken(**found), GOAL, RULES, 2) == {}
    assert set(dropped(names, taken(current=[105, 100], b=[86, 85]), GOAL, RULES, 2)) == {"b"}
    assert dropped(names, taken(current=[105, 100], b=[70, 86]), GOAL, RULES, 2) == {}


def test_the_instance_as_it_is_is_never_dropped():
    steps = run_all({"current": {SPEED: 10.0}, "b": {SPEED: 100.0}, "c": {SPEED: 100.0}})
    assert [step.variant for step in steps].count("current") == 3


def test_a_variant_that_fails_is_not_measured_again():
    same = {name: {SPEED: 100.0} for name in NAMES}
    steps = run_all(same, fails=[Step("b", 2)])
    assert [step for step in steps if step.variant == "b"] == [Step("b", 1), Step("b", 2)]


def test_an_interrupted_tune_goes_on_where_it_was():
    assert next_step(NAMES, taken(current=[100, 100], b=[100, 100], c=[100]), GOAL, RULES) == Step("c", 2)
    assert next_step(NAMES, taken(current=[100, 100, 100], b=[100, 100, 100], c=[100, 100, 100]), GOAL, RULES) is None


def test_one_bad_run_does_not_drop_a_variant():
    """Its best run counts, against the worst of the leader; a single one only if it is far off."""
    found = taken(current=[100, 95], b=[60, 99], c=[100, 100])
    assert dropped(NAMES, found, GOAL, RULES, 2) == {
        "b": "dropped after round 1: 60.0 output tokens/s at best, current has 100.0 at worst"
    }
    assert dropped(NAMES, taken(current=[65, 95], b=[60, 99], c=[65, 100]), GOAL, RULES, 2) == {}


def test_a_limit_that_is_missed_by_far_drops_a_variant():
    goal = Goal(SPEED, "chat", 64, {"itl_p99_ms": 10})
    runs = {"current": [{SPEED: 100.0, "itl_p99_ms": 9.0}], "b": [{SPEED: 200.0, "itl_p99_ms": 13.6}]}
    found = taken(**runs, c=[{SPEED: 150.0, "itl_p99_ms": 13.4}])
    assert dropped(NAMES, found, goal, RULES, 1) == {"b": "dropped after round 1: ITL p99 ms 13.6 at best, limit 10"}
    # Who misses a limit does not lead.
    assert leader(NAMES, found, goal, 1) == "current"


def test_lower_is_better_for_times():
    goal = Goal("start_seconds", "chat", 1, {})
    found = taken(current=[{"start_seconds": 100.0}], b=[{"start_seconds": 50.0}], c=[{"start_seconds": 69.0}])
    assert leader(NAMES, found, goal, 1) == "b"
    assert set(dropped(NAMES, found, goal, RULES, 1)) == {"c"}


def test_the_leader_is_that_of_medians():
    assert leader(NAMES, taken(current=[100, 100, 100], b=[300, 90, 90]), GOAL, 3) == "current"
    assert leader(NAMES, taken(), GOAL, 3) is None
