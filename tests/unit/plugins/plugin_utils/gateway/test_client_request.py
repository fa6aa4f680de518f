# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.baremetal.inference.plugins.plugin_utils.gateway.client_request import (
    UNMADE,
    ClientRequestError,
    check_request,
    clients_after,
    entry_of,
)

NOW = 1795600000
CLIENTS = {"alice": {"key_file": "/k"}, "bob": {"key_file": "/l"}}
DIGEST = "a" * 64


def options(**more):
    return {
        "make": "", "end": "", "clients": CLIENTS, "team": "", "models": [], "rate": 0, "concurrent": 0, "expires": "",
        "sha256": "", "tokens_per_minute": 0, "tokens_per_day": 0, "tokens_per_month": 0, "teams": {}, **more,
    }  # fmt: skip


def test_requests_that_are_possible():
    check_request(options(), NOW)
    check_request(options(end="bob"), NOW)
    made = options(make="reports", team="finance", models=["chat"], rate=5, tokens_per_day=9, sha256=DIGEST)
    check_request(made, NOW)
    entry = {"sha256": [DIGEST], "team": "finance", "models": ["chat"], "rate": 5, "tokens_per_day": 9}
    assert entry_of(made, DIGEST) == entry
    assert clients_after(made, DIGEST) == {**CLIENTS, "reports": entry}
    assert clients_after(options(make="reports"), UNMADE)["reports"] == {"sha256": [UNMADE]}
    assert list(clients_after(options(end="bob"), UNMADE)) == ["alice"]
    assert clients_after(options(), UNMADE) == CLIENTS


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"make": "bob"}, "gateway_keys_make: gateway_clients has bob already; choose another name, or"),
        ({"make": "a b"}, "gateway_keys_make: found 'a b', expected a name"),
        ({"make": "c", "end": "bob"}, "gateway_keys_make: c, and gateway_keys_end: bob; name one of them"),
        ({"end": "bobb"}, "gateway_keys_end: gateway_clients has no 'bobb'; nearest: 'bob'"),
        ({"team": "finance"}, "gateway_keys_team: only a new client has it; name the client with -e gateway_keys_make"),
        ({"end": "bob", "rate": 5}, "gateway_keys_rate: only a new client has it"),
        (
            {"make": "c", "team": "Product", "teams": {"product": {}}},
            "(`inference key add NAME --team TEAM`): gateway_teams has no 'Product'; nearest: 'product'",
        ),
        ({"make": "c", "team": "a b"}, "gateway_keys_team: found 'a b', expected a name"),
        ({"make": "c", "tokens_per_day": -1}, "gateway_keys_tokens_per_day: found -1, expected a whole number from 1"),
        ({"tokens_per_day": 5}, "gateway_keys_tokens_per_day: only a new client has it"),
        ({"make": "c", "rate": -1}, "gateway_keys_rate: found -1, expected a whole number from 1"),
        ({"make": "c", "expires": "31.3.2027"}, "gateway_keys_expires: found '31.3.2027', expected a date such as"),
        (
            {"make": "c", "expires": "2026-11-24"},
            "gateway_keys_expires: found '2026-11-24', which is over; expected a time after 2026-11-25T09:46Z",
        ),
        ({"clients": ["alice"]}, "gateway_clients: found ['alice'], expected a mapping of names"),
    ],
)
def test_what_is_wrong_is_named(wrong, words):
    with pytest.raises(ClientRequestError) as caught:
        check_request(options(**wrong), NOW)
    assert words in str(caught.value)


def test_a_key_in_place_of_its_sha256_is_not_shown():
    with pytest.raises(ClientRequestError, match="expected 64 digits") as caught:
        check_request(options(make="c", sha256="planted-key"), NOW)
    assert "planted" not in str(caught.value)


def test_all_problems_of_a_new_client_are_told_at_once():
    with pytest.raises(ClientRequestError) as caught:
        check_request(options(make="bob", team="a b", expires="x", rate=-1), NOW)
    assert len(str(caught.value).splitlines()) == 4
