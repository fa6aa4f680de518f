# SPDX-License-Identifier: GPL-3.0-or-later
"""The database of tokens: each record once."""

from __future__ import annotations

import sqlite3

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_host import read_usage
from ansible_collections.baremetal.inference.plugins.module_utils.usage import store_host
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import MOST_TOKENS, read_parts
from ansible_collections.baremetal.inference.plugins.module_utils.usage.store_host import Store

from tests.fakes.usage_records import FILE, NOW, part, record, rows


def test_records_of_an_hour_are_one_row(store):
    store.add("a", [part(record(1), record(2, state="aborted")), part(record(1), file="101.8-1.jsonl")], NOW)
    store.add("b", [part(record(1, state="uncounted"))], NOW)
    assert rows(store) == [
        {
            "hour": NOW // 3600 * 3600, "gateway": "gw1", "client": "alice", "team": "research", "model": "m",
            "requests": 4, "aborted": 1, "uncounted": 1, "prompt": 28, "cached": 12, "completion": 20,
        }
    ]  # fmt: skip
    assert store.offsets("a") == {FILE: 100, "101.8-1.jsonl": 100} and store.offsets("c") == {}


def test_a_server_that_names_ever_new_clients_fills_no_database(store, monkeypatch):
    monkeypatch.setattr(store_host, "NAMES", 3)
    for number in range(1, 400, 2):
        new = [{**record(n), "client": f"c{n}", "model": f"m{n}"} for n in (number, number + 1)]
        found, _missing = store.add("evil", [part(*new, file=f"{number}.7-{number}.jsonl")], NOW)
    # All tokens count, under one name, and what another server says is not touched.
    assert {row["client"] for row in found} == {"unknown"}
    assert len(rows(store)) == 4 and sum(row["requests"] for row in rows(store)) == 400
    assert len(store.offsets("evil")) <= store_host.KEPT
    store.add("a", [part(record(1))], NOW)
    assert len(rows(store)) == 5


def test_the_largest_records_of_an_hour_add_up(store):
    most = {"prompt": MOST_TOKENS, "completion": MOST_TOKENS}
    store.add("a", [part(*({**record(number), **most} for number in range(1, 2000)))], NOW)
    assert [tokens for _client, _team, tokens in store.used(0)] == [1999 * 2 * MOST_TOKENS]


def test_a_gap_in_the_numbers_of_a_process_is_stored(store):
    assert store.add("a", [part(record(5))], NOW)[1] == 0
    # The process goes on in another file.
    assert store.add("a", [part(record(9), record(10), file="200.7-1.jsonl")], NOW)[1] == 3
    assert read_usage(store.path, 0, NOW * 2)["gaps"] == [{"hour": NOW // 3600 * 3600, "server": "a", "missing": 3}]


@pytest.mark.parametrize(
    "damage", [{"prompt": 10**30}, {"completion": float("inf")}, {"number": 10**30}, {"at": 1e999}]
)
def test_a_number_that_no_database_holds_loses_its_own_record_only(store, damage):
    found, _missing = store.add("a", [part(record(1), {**record(2), **damage}, record(3))], NOW)
    assert [row["requests"] for row in rows(store)] == [2] and len(found) == 2


@pytest.mark.parametrize("at", [0, -5, NOW + 86401, NOW - 500 * 86400])
def test_a_time_that_is_quite_wrong_counts_in_this_hour(store, at):
    store.add("a", [part(record(1, at))], NOW)
    assert [row["hour"] for row in rows(store)] == [NOW // 3600 * 3600]


def test_gateways_whose_clocks_differ_store_a_record_in_the_same_hour(store):
    for number, clock in enumerate((NOW - 7200, NOW, NOW + 7200)):
        store.add(f"{number}", [part(record(1))], clock)
    assert [(row["hour"], row["requests"]) for row in rows(store)] == [(NOW // 3600 * 3600, 3)]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", '{"number": 1}', '{"file": "f", "end": 3}\n{"number": 1}',
        '{"file": "f", "end": 3}\n[1]\n"x"\n1',
        '{"file": "f", "end": 3}\n{"number": 1, "at": 1, "gateway": 1, "client": 1, "team": 1, "model": 1, "state": 1, '
        '"prompt": -1, "cached": 0, "completion": 0}',
    ],
)  # fmt: skip
def test_a_damaged_record_counts_nothing_and_stops_nothing(store, text):
    store.add("a", read_parts(text), NOW)
    assert rows(store) == []


def test_old_months_are_removed(store):
    store.add("a", [part(record(1, NOW - 300 * 86400))], NOW - 300 * 86400)
    later = NOW + 120 * 86400
    store.add("a", [part(record(2, later))], later)
    assert [row["hour"] for row in rows(store)] == [later // 3600 * 3600]


def test_a_clock_that_jumps_ahead_forgets_no_place(store):
    store.add("a", [part(record(1))], NOW)
    store.add("b", [part(record(1))], NOW + 1000 * 86400)
    again = Store(store.path, 13)
    again.add("b", [part(record(2), end=200)], NOW)
    assert again.offsets("a") == {FILE: 100} and again.add("a", [part(record(1))], NOW) == ([], 0)


def test_places_of_files_that_were_read_long_ago_are_forgotten(store):
    for number in range(300):
        store.add("a", [part(record(1), file=f"{number}.{number}-1.jsonl")], NOW)
    store.pruned_at = 0
    store.add("b", [part(record(1))], NOW)
    assert list(store.offsets("a")) == [f"{number}.{number}-1.jsonl" for number in range(44, 300)]
    assert len(store.offsets("b")) == 1


def test_names_that_are_known_stay_when_a_server_has_named_too_many(store, monkeypatch):
    monkeypatch.setattr(store_host, "NAMES", 2)
    clients = ("ann", "bob", "eve", "ann")
    store.add("a", [part(*({**record(n), "client": name} for n, name in enumerate(clients)))], NOW)
    assert {row["client"]: row["requests"] for row in rows(store)} == {"ann": 2, "bob": 1, "unknown": 1}


def test_a_process_that_has_written_nothing_yet_began_at_zero(store):
    assert store.add("a", [part()], NOW)[1] == 0
    assert store.add("a", [part(record(3), file="101.7-1.jsonl")], NOW)[1] == 2


def test_what_fails_half_way_stores_nothing_and_holds_nobody_up(store, monkeypatch):
    store.add("a", [part(record(1))], NOW)

    def run_out(*_arguments):
        raise MemoryError

    with monkeypatch.context() as context:
        context.setattr(Store, "_bounded", run_out)
        with pytest.raises(MemoryError):
            store.add("a", [part(record(2), end=200)], NOW)
    assert store.offsets("a") == {FILE: 100}
    store.add("a", [part(record(2), end=200)], NOW)
    assert store.offsets("a") == {FILE: 200} and rows(store)[0]["requests"] == 2


def test_who_reads_the_database_does_not_hold_up_a_gateway(store):
    store.add("a", [part(record(1))], NOW)
    reader = sqlite3.connect(store.path, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT SUM(requests) FROM usage").fetchone() == (1,)
    store.add("a", [part(record(2), end=200)], NOW)
    # The reader still has its own state, and the next one has both.
    assert reader.execute("SELECT SUM(requests) FROM usage").fetchone() == (1,)
    reader.execute("COMMIT")
    assert reader.execute("SELECT SUM(requests) FROM usage").fetchone() == (2,)
    reader.close()


def test_a_damaged_database_is_put_aside_with_a_line_and_counting_goes_on(store, tmp_path, capsys):
    (tmp_path / "usage.sqlite").write_bytes(b"not a database, " * 500)
    with pytest.raises(sqlite3.DatabaseError):
        store.add("a", [part(record(1))], NOW)
    (aside,) = tmp_path.glob("usage.sqlite.damaged-*")
    store.add("a", [part(record(1))], NOW)
    store.add("a", [part(record(2), end=200)], NOW)
    assert rows(store)[0]["requests"] == 2 and aside.read_bytes().startswith(b"not a database")
    lines = "".join(capsys.readouterr()).splitlines()
    assert lines == [
        f"{store.path}: file is not a database; the records wait at the instances",
        f"{store.path}: damaged; it is now {aside}, and a new one is made",
        f"{store.path}: works again",
    ]


def test_sums_beyond_sqlites_numbers_end_no_service(store):
    """As of records that releases up to 0.15.0 took."""
    store.add("a", [part(record(1))], NOW)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE usage SET prompt = ?", (2**63 - 1,))
    assert store.used(0)[0][2] == 2**63 - 1
