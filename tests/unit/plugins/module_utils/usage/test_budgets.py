# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets: each token in the window of its own time."""

from __future__ import annotations

import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.usage.budgets import Budgets, window
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import row_of

from tests.fakes.usage_records import NOW, part, record


def test_a_clock_that_jumps_and_returns_forgets_no_budget():
    budgets = Budgets({"@research": {"day": 36}})

    def add(number, at):
        budgets.add([row_of(record(number, at), at, 0)], at)

    add(1, NOW)
    add(2, NOW)
    add(3, NOW + 86400)
    assert budgets.over(NOW) == budgets.over(NOW + 86400) == {}
    add(4, NOW)
    assert list(budgets.over(NOW)) == ["@research"] and budgets.over(NOW + 86400) == {}


def test_windows_that_are_long_over_are_forgotten():
    budgets = Budgets({"@research": {"minute": 5, "day": 5, "month": 5}})
    for number in range(200):
        at = NOW + number * 43200
        budgets.add([row_of(record(number, at), at, 0)], at)
        assert len(budgets.over(at)) == 1
    assert len(budgets.used) <= 1 + 8 + 3


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("minute", "2026-12-31 23:59:00", "2027-01-01 00:00:00"), ("day", "2026-12-31 00:00:00", "2027-01-01 00:00:00"),
        ("month", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
    ],
)  # fmt: skip
def test_windows_begin_in_utc(period, begins, ends):
    found = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(each)) for each in window(period, 1_798_761_599)]
    assert found == [begins, ends]


def test_a_budget_is_used_up_until_its_window_ends(store):
    limits = {"alice": {"minute": 24, "month": 1000}, "@research": {"day": 36}, "@other": {"day": 1}}
    budgets = Budgets(limits)
    made, _missing = store.add("a", [part(record(1), record(2, NOW - 3600))], NOW)
    budgets.add(made, NOW)
    # Of the minute there are 12 tokens only.
    assert budgets.over(NOW) == {} and not budgets.reached.is_set()
    made, _missing = store.add("a", [part(record(3))], NOW)
    budgets.add(made, NOW)
    minute, day = NOW // 60 * 60 + 60, NOW // 86400 * 86400 + 86400
    assert budgets.reached.is_set()
    assert budgets.over(NOW) == {
        "alice": f"{minute}|client|alice|24|minute", "@research": f"{day}|team|research|36|day"
    }  # fmt: skip
    assert list(budgets.over(NOW + 60)) == ["@research"] and budgets.over(day) == {}
    lines = budgets.text(NOW).splitlines()
    assert 'inference_usage_budget_tokens{kind="client",owner="alice",period="month"} 1000' in lines
    assert 'inference_usage_budget_used_tokens{kind="client",owner="alice",period="minute"} 24' in lines
    assert 'inference_usage_budget_used_tokens{kind="team",owner="other",period="day"} 0' in lines
    # In the next minute nothing of it is used.
    assert 'inference_usage_budget_used_tokens{kind="client",owner="alice",period="minute"} 0' in budgets.text(NOW + 60)
    assert Budgets({}).text(NOW) == ""
    # Another process begins with what is stored.
    again = Budgets(limits)
    again.load(store.used, NOW)
    assert list(again.over(NOW)) == ["@research"]


def test_of_budgets_that_are_used_up_the_one_that_ends_last_is_told_and_once():
    budgets = Budgets({"alice": {"month": 12, "minute": 12}})
    budgets.add([row_of(record(1), NOW, 0)], NOW)
    assert budgets.over(NOW)["alice"].endswith("|12|month") and budgets.reached.is_set()
    budgets.reached.clear()
    budgets.add([row_of(record(2), NOW, 0)], NOW)
    assert not budgets.reached.is_set()


def test_a_database_that_fails_at_the_second_look_counts_nothing_twice():
    budgets, answers = Budgets({"alice": {"day": 20}}), iter([[("alice", "", 12)], ValueError("locked")])

    def used(_since):
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    with pytest.raises(ValueError, match="locked"):
        budgets.load(used, NOW)
    budgets.load(lambda _since: [("alice", "", 12)], NOW)
    assert budgets.over(NOW) == {}
