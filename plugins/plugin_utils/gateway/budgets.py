# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets of tokens: those of clients and of teams, as the gateway's service reads them."""

from typing import Any, Mapping

from ...module_utils.common.kinds import show_value
from ...module_utils.common.spelling import nearest, not_a_number
from ...module_utils.gateway.clients import BUDGETS, MOST_TOKENS, NAME
from .admission import class_problems

# In front of the name of a team, which no client's name begins with.
TEAM = "@"
TEAM_OPTIONS = ("class", *BUDGETS)


def budgets_of(clients: Any, teams: Any, counts: bool) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return the tokens by period of each client, and of each team as TEAM and its name; and the problems.

    ``clients`` and ``teams`` are those of the role, ``counts`` whether the gateway counts tokens.
    """
    if not isinstance(teams, Mapping):
        return {}, [f"gateway_teams: found {show_value(teams)}, expected a mapping of names to {{tokens_per_day: ...}}"]
    # The keys of clients are checked with the rest of them.
    entries = clients.items() if isinstance(clients, Mapping) else ()
    own = {str(name): entry for name, entry in entries if isinstance(entry, Mapping)}
    problems = [text for name, entry in teams.items() for text in _team_problems(str(name), entry)]
    problems += [text for name, entry in own.items() for text in _limit_problems(f"gateway_clients.{name}", entry)]
    problems += [
        f"gateway_clients.{name}.team: gateway_teams has no {show_value(entry['team'])}; "
        f"{nearest(str(entry['team']), [str(team) for team in teams])}"
        for name, entry in own.items()
        # Another value than a text is refused with the rest of the client.
        if teams and isinstance(entry.get("team"), str) and entry["team"] not in teams
    ]
    if problems:
        return {}, problems
    found = {
        **{name: _limits(entry) for name, entry in own.items()},
        **{f"{TEAM}{name}": _limits(entry) for name, entry in teams.items()},
    }
    found = {owner: limits for owner, limits in found.items() if limits}
    if found and not counts:
        owner = next(iter(found)).lstrip(TEAM)
        return {}, [f"gateway_tokens is false, and {owner} has a budget of tokens; set gateway_tokens: true"]
    return found, []


def beyond_team(clients: Any, budgets: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a warning for each budget of a client that its team's ends before."""
    return [
        f"gateway_clients.{name}.tokens_per_{period}: {tokens:,} are more than its team has, {of_team:,}"
        for name, entry in clients.items()
        for period, tokens in budgets.get(str(name), {}).items()
        if (of_team := budgets.get(f"{TEAM}{entry.get('team')}", {}).get(period, tokens)) < tokens
    ]


def _team_problems(name: str, entry: Any) -> list[str]:
    where = f"gateway_teams.{name}"
    if not NAME.match(name):
        return [f"{where}: expected a name of at most 64 letters, digits, dots, dashes and underscores"]
    if not isinstance(entry, Mapping):
        return [f"{where}: found {show_value(entry)}, expected a mapping such as {{tokens_per_day: 1000000}}"]
    unknown = [
        f"{where}: unknown key {show_value(key)}; {nearest(str(key), TEAM_OPTIONS)}"
        for key in entry
        if key not in TEAM_OPTIONS
    ]
    return [*unknown, *class_problems(where, entry), *_limit_problems(where, entry)]


def _limit_problems(where: str, entry: Mapping[str, Any]) -> list[str]:
    right = f"a whole number from 1 to {MOST_TOKENS}"
    return [
        f"{where}.{key}: {not_a_number(entry[key], right)}; leave {key} out for no limit"
        for key in BUDGETS
        if entry.get(key) is not None
        and (isinstance(entry[key], bool) or not isinstance(entry[key], int) or not 1 <= entry[key] <= MOST_TOKENS)
    ]


def _limits(entry: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens for ``minute``, ``day`` and ``month``."""
    return {key.rpartition("_")[2]: int(entry[key]) for key in BUDGETS if entry.get(key)}
