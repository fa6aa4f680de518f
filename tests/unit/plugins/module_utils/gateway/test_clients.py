# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients of a gateway: what may stand in gateway_clients, and what HAProxy's maps make of it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.clients import (
    CLIENTS,
    CONCURRENT,
    ENDS,
    MOST,
    RATES,
    RIGHTS,
    TEAMS,
    WARN_BEFORE,
    Client,
    KeyFileError,
    check_clients,
    commands,
    describe_maps,
    differences,
    ending,
    hashes_of,
    map_text,
    maps_of,
    maps_without,
    parse_map,
    shared_keys,
    steps,
)
from hypothesis import given
from hypothesis import strategies as st

KEY = "k" * 32
DIGEST, OTHER = (hashlib.sha256(key.encode()).hexdigest() for key in (KEY, "o" * 32))
ALICE = Client("alice", (DIGEST,), rate=60, concurrent=4, ends=1_800_000_000, team="research")
BOB = Client("bob", (OTHER,), services=("chat", "code=base", "code=sql"))


@pytest.mark.parametrize(
    "entry",
    [
        {"key_file": "keys/alice"},
        {"sha256": [DIGEST, OTHER]},
        {"key_file": "k", "rate": 1, "concurrent": MOST, "models": ["m"], "team": "a.b-c_d", "expires": "2027-03-31"},
    ],
)
def test_a_client_needs_a_key_and_nothing_else(entry):
    assert check_clients({"alice": entry}) == []


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "gateway_clients.alice.key_file: expected the path of a file"),
        ({"key_file": ""}, "gateway_clients.alice.key_file: expected the path of a file"),
        ({"key_file": "k", "sha256": [DIGEST]}, "gateway_clients.alice: has key_file and sha256; remove one"),
        ({"sha256": DIGEST}, "expected a list of texts of 64 digits 0-9a-f"),
        (
            {"sha256": []},
            "gateway_clients.alice.sha256: found an empty list, expected a list of texts of 64 digits 0-9a-f",
        ),
        ({"sha256": [DIGEST, DIGEST.upper()]}, ".sha256[1]: found capital letters, expected 64 digits 0-9a-f; run"),
        ({"sha256": [DIGEST[:-1]]}, ".sha256[0]: found a text of 63 characters, expected 64 digits 0-9a-f"),
        ({"sha256": [7]}, ".sha256[0]: found a number, expected 64 digits 0-9a-f"),
        ({"key_file": "k", "rat": 5}, "gateway_clients.alice: unknown key 'rat'; nearest: 'rate'"),
        ({"key_file": "k", "rate": 0}, "gateway_clients.alice.rate: "),
        ({"key_file": "k", "rate": True}, "gateway_clients.alice.rate: "),
        ({"key_file": "k", "concurrent": "4"}, "gateway_clients.alice.concurrent: "),
        ({"key_file": "k", "concurrent": MOST + 1}, "leave concurrent out for no limit"),
        ({"key_file": "k", "models": []}, "expected a list of model names; leave it out for all models"),
        ({"key_file": "k", "models": "m"}, "expected a list of model names"),
        ({"key_file": "k", "team": "a:b"}, "gateway_clients.alice.team: "),
        ({"key_file": "k", "expires": "soon"}, "leave it out for keys that stay valid"),
        ("keys/alice", "expected a mapping with key_file"),
    ],
)
def test_anything_else_is_one_problem_that_names_its_place(entry, problem):
    (found,) = check_clients({"alice": entry})
    assert problem in found and found.startswith("gateway_clients.alice")


def test_a_key_in_the_place_of_its_hash_is_not_repeated():
    (found,) = check_clients({"alice": {"sha256": [KEY]}})
    assert KEY not in found


@pytest.mark.parametrize("name", ["", "-a", "a b", "a:b", "a" * 65, "a\n"])
def test_a_name_becomes_part_of_maps_and_headers(name):
    (found,) = check_clients({name: {"key_file": "k"}})
    assert "expected a name of at most 64 letters" in found


def test_a_list_of_clients_is_no_mapping():
    assert check_clients(["alice"])[0].startswith("gateway_clients: found ")


def test_a_key_file_has_a_key_on_each_line():
    assert hashes_of(f"\n  {KEY}\n{'o' * 32}\n{KEY}\n") == (DIGEST, OTHER)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\n \n", "is empty"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "is encrypted with ansible-vault"),
        (f"{KEY}\n{'s' * 31}\n", "key 2 has 31 characters, expected at least 32"),
        ("secret word " * 4, "key 1 has characters that are invalid in a bearer token"),
        ("schlüssel" * 4, "key 1 has characters that are invalid"),
    ],
)
def test_a_key_file_without_a_good_key_is_refused_and_shows_none(text, problem):
    with pytest.raises(KeyFileError, match=problem) as raised:
        hashes_of(text)
    assert not any(line.strip() in str(raised.value) for line in text.splitlines() if line.strip())


def test_two_clients_may_not_have_one_key():
    """Their limits and tokens could not be told apart."""
    assert shared_keys([ALICE, BOB]) == []
    (found,) = shared_keys([ALICE, Client("eve", (OTHER, DIGEST))])
    assert "alice and eve have the same key" in found and DIGEST not in found
    assert shared_keys([Client("alice", (DIGEST, DIGEST))]) == []


def test_the_maps_say_of_each_client_what_it_has():
    maps = maps_of([ALICE, BOB])
    assert maps[CLIENTS] == {DIGEST: "alice", OTHER: "bob"}
    assert describe_maps(maps) == {
        "alice": {
            "keys": 1, "rate": "60", "concurrent": "4", "services": ["*"], "expires": "2027-01-15T08:00:00Z",
            "team": "research",
        },
        "bob": {
            "keys": 1, "rate": "", "concurrent": "", "services": ["chat", "code (base, sql)"], "expires": "never",
            "team": "",
        },
    }  # fmt: skip


def test_without_a_client_nothing_of_it_is_left():
    maps = maps_of([ALICE, Client("alice2", (OTHER,), rate=60, team="alice")])
    left = maps_without(maps, "alice")
    assert left == maps_of([Client("alice2", (OTHER,), rate=60, team="alice")])
    assert maps_without(maps, "nobody") == maps


def test_maps_of_earlier_releases_without_rights_let_a_client_use_every_service():
    maps = maps_of([ALICE])
    del maps[RIGHTS]
    assert describe_maps(maps)["alice"]["services"] == ["*"]
    assert differences(maps, maps_of([ALICE])) == {"added": [], "removed": [], "changed": []}


@pytest.mark.parametrize(
    "change", [{"rate": 61}, {"sha256": ("1" * 64,)}, {"services": ("chat",)}, {"ends": 0}, {"team": ""}]
)
def test_any_change_of_a_client_is_one(change):
    assert differences(maps_of([ALICE]), maps_of([replace(ALICE, **change), BOB])) == {
        "added": ["bob"], "removed": [], "changed": ["alice"],
    }  # fmt: skip


def test_what_is_written_is_what_is_read():
    for entries in maps_of([ALICE, BOB]).values():
        assert parse_map(map_text(entries)) == entries
    assert parse_map("# made by hand\n\nalice   60  \nlonely\n") == {"alice": "60"}


def test_commands_turn_one_map_into_another_and_remove_last():
    now, requested = {"a": "1", "b": "1", "c": "1"}, {"a": "2", "b": "1", "d": "4"}
    assert commands("/m", now, requested) == ["set map /m a 2", "add map /m d 4", "del map /m c"]
    assert commands("/m", now, now) == []


def may(maps, key):
    """Return the rights, limits and team of a key; None for an unknown one."""
    name = maps[CLIENTS].get(key)
    if name is None:
        return None
    rights = {right.partition(":")[2] for right in maps[RIGHTS] if right.startswith(f"{name}:")}
    limits = [int(maps[limit].get(name, 0)) or math.inf for limit in (RATES, CONCURRENT, ENDS)]
    return rights, limits, maps[TEAMS].get(name, "")


def is_at_most(one, other):
    if one is None or other is None:
        return one is None
    (rights, limits, team), (their_rights, their_limits, their_team) = one, other
    return (
        ("*" in their_rights or rights <= their_rights)
        and all(limit <= theirs for limit, theirs in zip(limits, their_limits))
        # The budget of a team is a limit too, whichever team it is.
        and bool(team or not their_team)
    )


LIMIT = st.integers(0, 2)
KEYS = [letter * 64 for letter in "abcd"]
RIGHTS_OF = st.sampled_from([("*",), ("chat",), ("chat", "embed"), ("embed",)])
TEAM = st.sampled_from(["", "red", "green"])


@st.composite
def some_clients(draw):
    owners = draw(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["alice", "bob"])))
    keys = {name: tuple(key for key in owners if owners[key] == name) for name in owners.values()}
    return [
        Client(name, keys[name], draw(LIMIT), draw(LIMIT), draw(RIGHTS_OF), draw(LIMIT), draw(TEAM)) for name in keys
    ]


@given(some_clients(), some_clients())
def test_a_change_that_breaks_off_anywhere_lets_no_key_do_more_than_before_or_after_it(before, after):
    old, new = maps_of(before), maps_of(after)
    present = {name: dict(entries) for name, entries in old.items()}
    for name, entries in steps(old, new):
        for command in commands("/m", present[name], entries):
            verb, _map, _path, key, *value = command.split()
            present[name].pop(key, None) if verb == "del" else present[name].update({key: value[0]})
            for each in KEYS:
                found = may(present, each)
                assert is_at_most(found, may(old, each)) or is_at_most(found, may(new, each)), (command, each)
    assert present == new


def test_new_rights_come_when_the_team_has_ended():
    """Its class would serve them before others."""
    old, new = (
        maps_of([Client("a", ("0" * 64,), 0, 0, *each)]) for each in ((("chat",), 0, "red"), (("chat", "code"), 0, ""))
    )
    present = dict(old)
    for name, entries in steps(old, new):
        present[name] = entries
        assert "a:code" not in present[RIGHTS] or not present[TEAMS]


@pytest.mark.parametrize(("one", "rights"), [(("*",), ["chat"]), (("chat", "embed"), ["chat"]), (("embed",), [])])
def test_a_client_keeps_the_rights_that_it_had_and_will_have(one, rights):
    old, new = maps_of([replace(BOB, services=one)]), maps_of([replace(BOB, services=("chat",))])
    assert dict(steps(old, new)[:1]) == {RIGHTS: {f"bob:{right}": "1" for right in rights}}


def test_numbers_that_somebody_spoilt_are_replaced():
    assert ("rates.map", {"alice": "60"}) in steps({**maps_of([ALICE]), RATES: {"alice": "x"}}, maps_of([ALICE]))[:2]


def test_a_run_warns_of_keys_that_end():
    end = ALICE.ends
    assert ending([ALICE, BOB], end - WARN_BEFORE - 1) == []
    assert "its keys expire on 2027-01-15T08:00:00Z; give it a new expires" in ending([ALICE], end - WARN_BEFORE)[0]
    assert "its keys expired on 2027-01-15T08:00:00Z; remove it" in ending([ALICE, BOB], end)[0]
