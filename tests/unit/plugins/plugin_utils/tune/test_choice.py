# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.choice import choose, result_table, rows
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.goal import Goal
from ansible_collections.baremetal.inference.plugins.plugin_utils.tune.schedule import Rules, Taken

SPEED = "output_tokens_per_second"
NAMES = ["current", "b"]
GOAL = Goal(SPEED, "chat", 64, {})
RULES = Rules(3, 0.1)


def taken(failures=(), **runs):
    rounds = {
        name: {number: run if isinstance(run, dict) else {SPEED: float(run)} for number, run in enumerate(values, 1)}
        for name, values in runs.items()
    }
    return Taken(rounds, dict(failures))


def test_a_variant_that_is_better_in_every_run_is_proposed():
    choice = choose(NAMES, taken(current=[100, 101, 102], b=[103, 105, 104]), GOAL, RULES)
    assert (choice.winner, choice.proposed) == ("b", True)
    assert choice.reason == "b: 104.0 instead of 101.0 output tokens/s, in every run"


def test_a_difference_within_the_spread_is_not_proposed():
    choice = choose(NAMES, taken(current=[100, 101, 104], b=[103, 106, 105]), GOAL, RULES)
    assert (choice.winner, choice.proposed) == ("b", False)
    assert "may be chance" in choice.reason


def test_the_instance_as_it_is_wins():
    choice = choose(NAMES, taken(current=[100, 101, 104], b=[99, 98, 97]), GOAL, RULES)
    assert (choice.winner, choice.proposed) == ("current", False)


def test_a_variant_that_was_dropped_or_failed_does_not_win():
    assert choose(NAMES, taken(current=[100, 100, 100], b=[200, 200]), GOAL, RULES).winner == "current"
    failed = taken({"b": "died"}, current=[100, 100, 100], b=[200, 200, 200])
    assert choose(NAMES, failed, GOAL, RULES).winner == "current"


def test_limits():
    goal = Goal(SPEED, "chat", 64, {"itl_p99_ms": 10})
    slow = [{SPEED: 100.0, "itl_p99_ms": 9.0}] * 3
    rough = [{SPEED: 105.0, "itl_p99_ms": 10.5}] * 3
    assert choose(NAMES, taken(current=slow, b=rough), goal, RULES).winner == "current"
    choice = choose(NAMES, taken(current=rough, b=slow), goal, RULES)
    assert (choice.winner, choice.proposed) == ("b", True)
    assert choice.reason.endswith("the unchanged instance misses a limit (ITL p99 ms 10.5, limit 10)")
    nobody = choose(NAMES, taken(current=rough, b=rough), goal, RULES)
    assert (nobody.winner, nobody.proposed) == (None, False)


def test_a_figure_that_is_not_known_misses_its_limit():
    goal = Goal(SPEED, "chat", 64, {"joules_per_token": 1})
    assert choose(NAMES, taken(current=[100] * 3, b=[200] * 3), goal, RULES).winner is None


def test_the_table():
    found = taken({"b": "does not start: no memory"}, current=[1000, 1010, 1020], b=[])
    text = result_table(rows(NAMES, found, GOAL, RULES), GOAL, choose(NAMES, found, GOAL, RULES))
    lines = text.splitlines()
    assert lines[0] == "Goal: highest output tokens/s with 64 requests of chat at a time"
    assert lines[2].split() == ["variant", "runs", "output", "tokens/s", "outcome"]
    assert lines[4].split() == ["current", "3", "1,010", "[1,000-1,020]"]
    assert lines[5].split() == ["b", "0", "does", "not", "start:", "no", "memory"]
    assert lines[-1].startswith("Result: no variant is better than the unchanged instance")
    assert max(map(len, lines)) <= 120


def test_the_table_has_the_figures_that_the_goal_names():
    found = taken(current=[{SPEED: 1000.0, "tpot_ms": 4.0}], b=[])
    goal = Goal(SPEED, "chat", 64, {"tpot_ms": 5})
    texts = [
        result_table(rows(NAMES, found, each, RULES), each, choose(NAMES, found, each, RULES)) for each in (goal, GOAL)
    ]
    assert ["TPOT ms" in text.split("Result")[0].split("variant")[1] for text in texts] == [True, False]
