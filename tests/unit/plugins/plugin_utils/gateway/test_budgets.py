# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets of clients and teams in the inventory."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.budgets import beyond_team, budgets_of


def test_budgets_are_those_of_clients_and_of_teams():
    clients = {"a": {"team": "x", "tokens_per_minute": 5}, "b": {"team": "y"}, "c": {}}
    teams = {"x": {"tokens_per_day": 7, "tokens_per_month": 9}, "y": {}}
    assert budgets_of(clients, teams, True) == ({"a": {"minute": 5}, "@x": {"day": 7, "month": 9}}, [])


def test_without_a_budget_nothing_needs_to_be_counted():
    assert budgets_of({"a": {"team": "any"}}, {}, False) == ({}, [])


@pytest.mark.parametrize(
    ("clients", "teams", "counts", "message"),
    [
        ({}, [], True, "gateway_teams: found [], expected a mapping"),
        ({}, {"a b": {}}, True, "gateway_teams.a b: expected a name of at most 64"),
        ({}, {"x": 5}, True, "gateway_teams.x: found 5, expected a mapping such as {tokens_per_day: 1000000}"),
        ({}, {"x": {"tokens_per_dya": 5}}, True, "nearest: 'tokens_per_day'"),
        ({}, {"x": {"tokens_per_day": 0}}, True, "gateway_teams.x.tokens_per_day: "),
        ({}, {"x": {"tokens_per_day": 10**30}}, True, "expected a whole number from 1 to 1000000000000000; leave"),
        ({"a": {"tokens_per_day": True}}, {}, True, "gateway_clients.a.tokens_per_day: "),
        ({"a": {"tokens_per_day": "10"}}, {}, True, "gateway_clients.a.tokens_per_day: "),
        ({"a": {"team": "finanse"}}, {"finance": {}}, True, "gateway_clients.a.team: gateway_teams has no 'finanse'"),
        ({}, {"x": {"tokens_per_day": 1}}, False, "x has a budget of tokens; set gateway_tokens: true"),
    ],
)
def test_a_wrong_budget_is_one_clear_error(clients, teams, counts, message):
    found, problems = budgets_of(clients, teams, counts)
    assert found == {} and len(problems) == 1 and message in problems[0]


def test_a_team_that_is_no_text_is_left_to_the_check_of_clients():
    assert budgets_of({"a": {"team": ["x"]}, "b": {"team": {}}}, {"x": {}}, True) == ({}, [])


def test_a_budget_that_ends_with_the_teams_is_a_warning():
    clients = {"a": {"team": "t", "tokens_per_day": 1100, "tokens_per_month": 9}, "b": {"tokens_per_day": 1}}
    budgets, _problems = budgets_of(clients, {"t": {"tokens_per_day": 1000, "tokens_per_month": 9}}, True)
    assert beyond_team(clients, budgets) == [
        "gateway_clients.a.tokens_per_day: 1,100 are more than its team has, 1,000"
    ]
