# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that stores tokens on a gateway: each record once, whatever the database or an instance does."""

from __future__ import annotations

import importlib
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway.usage_host import UsageError, read_usage

from tests.fakes.gateways import loaded

usage = loaded("gateway-usage")
stored, budgets_of = importlib.import_module("gateway_usage_store"), importlib.import_module("gateway_usage_budgets")
NOW = 1_764_077_502
FILE = "100.7-1.jsonl"
NONE = usage.Budgets({}, "", "")


def record(number, at=NOW, **more):
    return {
        "number": number, "at": at, "gateway": "gw1", "client": "alice", "team": "research", "model": "m",
        "state": "complete", "prompt": 7, "cached": 3, "completion": 5, **more,
    }  # fmt: skip


def part(*records, file=FILE, end=100):
    return stored.Part(file, end, list(records))


@pytest.fixture
def store(tmp_path):
    return stored.Store(str(tmp_path / "usage.sqlite"), 13)


def rows(store):
    return read_usage(store.path, 0, NOW * 2)["rows"]


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


def test_a_clock_that_jumps_and_returns_forgets_no_budget():
    budgets = usage.Budgets({"@research": {"day": 36}}, "", "")

    def add(number, at):
        budgets.add([stored.row_of(record(number, at), at, 0)], at)

    add(1, NOW)
    add(2, NOW)
    add(3, NOW + 86400)
    assert budgets.over(NOW) == budgets.over(NOW + 86400) == {}
    add(4, NOW)
    assert list(budgets.over(NOW)) == ["@research"] and budgets.over(NOW + 86400) == {}


def test_windows_that_are_long_over_are_forgotten():
    budgets = usage.Budgets({"@research": {"minute": 5, "day": 5, "month": 5}}, "", "")
    for number in range(200):
        at = NOW + number * 43200
        budgets.add([stored.row_of(record(number, at), at, 0)], at)
        assert len(budgets.over(at)) == 1
    assert len(budgets.used) <= 1 + 8 + 3


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
    store.add("a", stored.read_parts(text), NOW)
    assert rows(store) == []


def test_old_months_are_removed(store):
    store.add("a", [part(record(1, NOW - 300 * 86400))], NOW)
    later = NOW + 120 * 86400
    store.add("a", [part(record(2, later))], later)
    assert [row["hour"] for row in rows(store)] == [later // 3600 * 3600]


class Instance(BaseHTTPRequestHandler):
    """An instance whose records are ``server.text``, read from the offset in the query."""

    def do_GET(self):
        asked, self.server.asked = self.path, self.path
        status, text = self.server.status, self.server.text if f":{self.server.end}" not in asked else ""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args):
        pass


@pytest.fixture
def instance():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Instance)
    server.text, server.end, server.status = "", 100, 200
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def answer(*records, end=100):
    return "\n".join([usage.json.dumps(line) for line in [{"file": FILE, "end": end}, *records]])


@pytest.fixture
def follower(instance, store):
    return usage.Follower(f"127.0.0.1:{instance.server_port}", "gw--chat-1", store, usage.Counters("gw1", store), NONE)


def test_a_record_is_read_once_also_by_the_next_process(instance, follower, store):
    instance.text = answer(record(1, time.time()))
    for _time in range(3):
        follower.step()
    again = usage.Follower(follower.address, follower.server, stored.Store(store.path, 13), follower.counters, NONE)
    again.step()
    assert [row["requests"] for row in rows(store)] == [1] and f"{FILE}:100" in instance.asked


def test_a_record_is_read_once_whatever_the_clock_of_its_instance_said(instance, follower, store):
    """Many files with names of the future, as of a clock that was set back, leave no room for the present one."""
    for number in range(200):
        store.add(follower.server, [part(record(1), file=f"{9000 + number}.{number}-2.jsonl", end=9)], NOW)
    before = sum(row["requests"] for row in rows(store))
    instance.text = answer(record(1, time.time()), record(2, time.time()))
    for _time in range(3):
        follower.step()
    assert f"{FILE}:100" in instance.asked
    # Nor is it counted again where an instance tells it once more.
    again = [part(record(2), record(3), end=150)]
    assert len(store.add(follower.server, again, NOW)[0]) == 1
    assert sum(row["requests"] for row in rows(store)) == before + 3


def test_a_clock_that_jumps_ahead_forgets_no_place(store):
    store.add("a", [part(record(1))], NOW)
    store.add("b", [part(record(1))], NOW + 1000 * 86400)
    again = stored.Store(store.path, 13)
    again.add("b", [part(record(2), end=200)], NOW)
    assert again.offsets("a") == {FILE: 100} and again.add("a", [part(record(1))], NOW) == ([], 0)


def test_places_of_files_that_were_read_long_ago_are_forgotten(store):
    for number in range(300):
        store.add("a", [part(record(1), file=f"{number}.{number}-1.jsonl")], NOW)
    store.pruned_at = 0
    store.add("b", [part(record(1))], NOW)
    assert list(store.offsets("a")) == [f"{number}.{number}-1.jsonl" for number in range(44, 300)]
    assert len(store.offsets("b")) == 1


def test_while_the_database_is_locked_records_wait_at_the_instance(instance, follower, store, capsys):
    follower.step()
    instance.text = answer(record(1, time.time()))
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert follower.step() == usage.PAUSE
    assert "inference_usage_store_up 0" in follower.counters.text()
    other.execute("ROLLBACK")
    other.close()
    follower.step()
    assert [row["requests"] for row in rows(store)] == [1]
    assert "inference_usage_store_up 1" in follower.counters.text()
    said = capsys.readouterr().out
    assert "the records wait at the instances" in said and "works again" in said


def test_a_full_disk_loses_nothing(instance, follower, store):
    follower.step()
    instance.text = answer(*[record(n, time.time(), client=f"{n}" * 200) for n in range(1, 500)])
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0] + 1
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    assert follower.step() == usage.PAUSE and "full" in store.fault
    follower.step()
    assert sum(row["requests"] for row in rows(store)) == 499


@pytest.mark.parametrize("at", [0, 2000])
def test_a_damaged_database_is_put_aside(instance, follower, store, tmp_path, at):
    instance.text = answer(*[record(n, time.time(), client=f"c{n}") for n in range(1, 200)])
    follower.step()
    store.connection.close()
    store.connection = None
    data = bytearray((tmp_path / "usage.sqlite").read_bytes())
    data[at : at + 4096] = b"\xff" * 4096
    (tmp_path / "usage.sqlite").write_bytes(data)
    follower.offsets = None
    for _time in range(3):
        follower.step()
    assert sum(row["requests"] for row in rows(store)) == 199
    assert list(tmp_path.glob("usage.sqlite.damaged-*"))


def test_an_instance_that_counts_nothing_is_named(instance, follower, capsys):
    instance.status = 404
    assert follower.step() == usage.PATIENCE
    assert 'inference_usage_server_counted{server="gw--chat-1"} 0' in follower.counters.text()
    follower.step()
    assert capsys.readouterr().out.count("counts no tokens; restart the instance") == 1
    instance.status = 200
    follower.step()
    assert 'inference_usage_server_counted{server="gw--chat-1"} 1' in follower.counters.text()


def test_an_instance_that_is_down_is_asked_again(follower, instance):
    instance.status = 500
    assert follower.step() == usage.PAUSE


def test_prometheus_gets_what_this_gateway_served(store):
    counters = usage.Counters("gw1", store)
    made, missing = store.add("a", [part(record(1), record(2, gateway="gw2"), record(5, model='a"b'))], NOW)
    counters.add(made, missing)
    text = counters.text()
    labels = 'client="alice",team="research",model="m"'
    assert f"inference_usage_requests_total{{{labels}}} 1" in text
    assert f'inference_usage_tokens_total{{{labels},kind="completion"}} 5' in text
    assert 'model="a\\"b"' in text and "inference_usage_missing_records_total 2" in text


def test_a_gateway_without_a_database_says_what_to_set(tmp_path):
    with pytest.raises(UsageError, match="set gateway_tokens: true"):
        read_usage(str(tmp_path / "none"), 0, 1)
    (tmp_path / "damaged").write_text("x" * 5000)
    with pytest.raises(UsageError, match="not a database"):
        read_usage(str(tmp_path / "damaged"), 0, 1)


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("minute", "2026-12-31 23:59:00", "2027-01-01 00:00:00"), ("day", "2026-12-31 00:00:00", "2027-01-01 00:00:00"),
        ("month", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
    ],
)  # fmt: skip
def test_windows_begin_in_utc(period, begins, ends):
    found = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(each)) for each in budgets_of.window(period, 1_798_761_599)]
    assert found == [begins, ends]


def test_a_budget_is_used_up_until_its_window_ends(store):
    limits = {"alice": {"minute": 24, "month": 1000}, "@research": {"day": 36}, "@other": {"day": 1}}
    budgets = usage.Budgets(limits, "", "")
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
    assert NONE.text(NOW) == ""
    # Another process begins with what is stored.
    again = usage.Budgets(limits, "", "")
    again.load(store, NOW)
    assert list(again.over(NOW)) == ["@research"]
