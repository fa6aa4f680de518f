# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the records of an instance: each once, whatever the database or the instance does."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.api_host import LateError
from ansible_collections.baremetal.inference.plugins.module_utils.usage import follow_host
from ansible_collections.baremetal.inference.plugins.module_utils.usage.budgets import Budgets
from ansible_collections.baremetal.inference.plugins.module_utils.usage.counters import Counters
from ansible_collections.baremetal.inference.plugins.module_utils.usage.follow_host import PATIENCE, PAUSE, Follower
from ansible_collections.baremetal.inference.plugins.module_utils.usage.record import (
    INSTANCE,
    header_of_reader,
    key_of,
    proof_of_answer,
)
from ansible_collections.baremetal.inference.plugins.module_utils.usage.rights_host import Rights
from ansible_collections.baremetal.inference.plugins.module_utils.usage.store_host import Store

from tests.fakes.dripping import DRIPS, dripping
from tests.fakes.usage_records import FILE, NOW, part, record, rows

NONE = Budgets({})
SERVER = {"name": "gw--chat-1", "service": "chat", "models": ["m"]}
KEY = key_of("s" * 32, INSTANCE, "gw--chat-1")


class Instance(BaseHTTPRequestHandler):
    """An instance whose records are ``server.text``, read from the offset in the query."""

    def do_GET(self):
        asked, self.server.asked = self.path, self.path
        self.server.proof = self.headers["X-Gateway-Usage"]
        status, text = self.server.status, self.server.text if f":{self.server.end}" not in asked else ""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        proof = self.server.prove(self.server.proof.encode(), text.encode())
        if proof is not None:
            self.send_header("X-Gateway-Proof", proof)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_args):
        pass


@pytest.fixture
def instance():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Instance)
    server.text, server.end, server.status = "", 100, 200
    server.prove = partial(proof_of_answer, KEY)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def answer(*records, end=100):
    return "\n".join([json.dumps(line) for line in [{"file": FILE, "end": end}, *records]])


@pytest.fixture
def follower(instance, store):
    return Follower(
        f"127.0.0.1:{instance.server_port}",
        SERVER,
        KEY,
        store,
        Counters("gw1"),
        NONE,
        Rights("/nowhere", "gw1", ["gw2"]),
    )


def test_a_record_is_read_once_also_by_the_next_process(instance, follower, store):
    instance.text = answer(record(1, time.time()))
    for _time in range(3):
        follower.step()
    again = Follower(follower.address, SERVER, "", Store(store.path, 13), follower.counters, NONE, follower.rights)
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


def test_while_the_database_is_locked_records_wait_at_the_instance(instance, follower, store, capsys):
    follower.step()
    instance.text = answer(record(1, time.time()))
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert follower.step() == PAUSE
    assert "inference_usage_store_up 0" in follower.counters.text(not store.fault)
    other.execute("ROLLBACK")
    other.close()
    follower.step()
    assert [row["requests"] for row in rows(store)] == [1]
    assert "inference_usage_store_up 1" in follower.counters.text(not store.fault)
    said = capsys.readouterr().out
    assert "the records wait at the instances" in said and "works again" in said


def test_a_full_disk_loses_nothing(instance, follower, store):
    follower.step()
    instance.text = answer(*[record(n, time.time(), client=f"c{n}", model=f"{n}" * 40) for n in range(1, 500)])
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0] + 1
    store.connection.execute(f"PRAGMA max_page_count = {pages}")
    assert follower.step() == PAUSE and "full" in store.fault
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


def damage(store):
    """Damage the database, as the next to open it finds out."""
    store.connection.close()
    store.connection = None
    with open(store.path, "wb") as file:
        file.write(b"not a database" * 1000)


def test_a_record_that_is_read_again_for_a_new_database_counts_once(instance, follower, store):
    follower.budgets, follower.log = Budgets({"c1": {"day": 1000}}), True
    at = int(time.time())
    instance.text = answer(record(1, at, client="c1"), record(2, at, client="c1"))
    follower.step()
    before = follower.budgets.text(at), follower.counters.text(True)
    assert "used_tokens" in before[0] and 'client="c1"' in before[1]
    damage(store)
    instance.text, instance.end = answer(record(1, at, client="c1"), record(2, at, client="c1"), end=200), 200
    for _time in range(3):
        follower.step()
    assert [row["requests"] for row in rows(store)] == [2]
    assert follower.budgets.text(at) == before[0]
    assert [line for line in follower.counters.text(True).splitlines() if "c1" in line] == [
        line for line in before[1].splitlines() if "c1" in line
    ]


def test_a_new_database_begins_with_what_all_instances_still_have(instance, follower, store):
    """Not only the one whose records came when the former database failed."""
    instance.text = answer(record(1, time.time()))
    other = Follower(
        follower.address, {**SERVER, "name": "gw--chat-2"}, "", store, Counters("gw1"), NONE, follower.rights
    )
    follower.step()
    other.step()
    damage(store)
    instance.end = 200
    assert follower.step() == PAUSE
    for _time in range(3):
        follower.step()
    # Now the other one, which has not seen the failure, has a later record.
    instance.text = answer(record(2, time.time()), end=300)
    assert other.step() == PAUSE
    other.step()
    assert instance.asked.endswith("&after=") and store.fault == ""


def test_after_an_error_of_the_database_it_alone_says_where_to_read_on(instance, follower, store, monkeypatch):
    """It may be another one by then, which has nothing of what was read before."""
    instance.text = answer(record(1, time.time()))
    follower.step()
    instance.end = 200
    with monkeypatch.context() as broken:
        broken.setattr(store, "add", mock.Mock(side_effect=sqlite3.DatabaseError))
        assert follower.step() == PAUSE
    monkeypatch.setattr(store, "offsets", lambda _server: {})
    follower.step()
    assert instance.asked.endswith("&after=")


def test_an_instance_that_counts_nothing_is_named(instance, follower, store, capsys):
    instance.status = 404
    assert follower.step() == PATIENCE
    assert 'inference_usage_server_counted{server="gw--chat-1"} 0' in follower.counters.text(not store.fault)
    follower.step()
    assert capsys.readouterr().out.count("counts no tokens; restart the instance") == 1
    instance.status = 200
    follower.step()
    assert 'inference_usage_server_counted{server="gw--chat-1"} 1' in follower.counters.text(not store.fault)


def test_an_instance_with_another_secret_is_named_with_what_to_do(instance, follower, store, capsys):
    instance.status = 403
    assert follower.step() == PATIENCE and instance.proof == header_of_reader(KEY, instance.proof.split()[3])
    said = capsys.readouterr().out
    assert (
        "counts no tokens, because it has another gateway_secret or release; run site.yml" in said and KEY not in said
    )
    assert 'inference_usage_server_counted{server="gw--chat-1"} 0' in follower.counters.text(not store.fault)


@pytest.mark.parametrize(
    "prove",
    [
        lambda _header, _body: None,
        lambda _header, _body: "",
        lambda _header, _body: "\xe9",
        lambda header, _body: header.rpartition(b" ")[2].decode(),
        lambda _header, body: proof_of_answer(KEY, header_of_reader(KEY, "0" * 32).encode(), body),
        lambda header, _body: proof_of_answer(KEY, header, b""),
        lambda header, body: proof_of_answer(key_of("s" * 32, INSTANCE, "gw--chat-2"), header, body),
    ],
    ids=["none", "empty", "odd", "what was sent", "another question", "another answer", "another instance"],
)
def test_who_has_the_port_of_an_instance_and_not_its_key_is_not_believed(instance, follower, store, capsys, prove):
    instance.text, instance.prove = answer(record(1, time.time())), prove
    assert follower.step() == PATIENCE and rows(store) == []
    assert "does not prove that it is the instance's" in capsys.readouterr().out
    instance.prove = partial(proof_of_answer, KEY)
    follower.step()
    assert [row["requests"] for row in rows(store)] == [1]


def test_an_instance_that_an_earlier_release_has_read_is_believed_until_its_first_proof(instance, follower, store):
    """It may have begun before the gateway's release did."""
    store.add(follower.server, [part(record(1), end=50)], NOW)
    instance.text, instance.end = answer(record(2, time.time())), 100
    signs, instance.prove = instance.prove, lambda _header, _body: None
    follower.step()
    assert sum(row["requests"] for row in rows(store)) == 2
    instance.prove = signs
    follower.step()
    again = Follower(follower.address, SERVER, KEY, Store(store.path, 13), follower.counters, NONE, follower.rights)
    instance.text, instance.end = answer(record(3, time.time()), end=150), 150
    instance.prove = lambda _header, _body: None
    assert follower.step() == again.step() == PATIENCE
    assert sum(row["requests"] for row in rows(store)) == 2


def test_an_instance_charges_no_client_that_has_no_right_to_its_service(instance, follower, store, tmp_path, capsys):
    (tmp_path / "rights.map").write_text("alice:other 1\nbob:chat 1\n")
    follower.rights = Rights(str(tmp_path), "gw1", ["gw2"])
    instance.text = answer(record(1, time.time(), client="alice"), record(2, time.time(), client="bob", team="-"))
    follower.step()
    assert sorted(row["client"] for row in rows(store)) == ["bob", "unknown"]
    assert "gw--chat-1 (127.0.0.1" in (said := capsys.readouterr().out)
    assert "1 records name clients that have no right to chat" in said


def test_an_instance_that_is_down_is_asked_again(follower, instance):
    instance.status = 500
    assert follower.step() == PAUSE


def test_a_line_that_is_nested_deeply_is_left_out_and_the_rest_counts(instance, follower, store):
    deep = "[" * 100_000
    instance.text = "\n".join([answer(record(1, time.time())), deep, json.dumps(record(2, time.time()))])
    assert follower.step() < PAUSE and [row["requests"] for row in rows(store)] == [2]


def test_nothing_is_read_of_an_answer_that_proves_nothing(instance, follower, monkeypatch, store):
    instance.text, instance.prove = answer(record(1, time.time())), lambda _header, _body: None
    monkeypatch.setattr(follow_host, "read_parts", lambda _text: pytest.fail("read"))
    assert follower.step() == PATIENCE and not rows(store)


def test_records_that_are_missing_again_and_again_are_reported_once_in_a_while(instance, follower, capsys):
    for number in range(1, 20, 4):
        instance.text, instance.end = answer(record(number, time.time()), end=number), number
        follower.step()
    assert capsys.readouterr().out.count("records are missing") == 1


def test_the_page_says_when_an_instance_was_read_last(instance, follower):
    name = 'inference_usage_server_read_timestamp_seconds{server="gw--chat-1"}'
    assert name not in follower.counters.text(True)
    follower.step()
    assert f"{name} {follower.counters.read_at['gw--chat-1']:.0f}" in follower.counters.text(True)
    instance.status, follower.counters.read_at["gw--chat-1"] = 500, 5.0
    follower.step()
    assert f"{name} 5" in follower.counters.text(True)


@pytest.mark.parametrize("drip", DRIPS)
def test_no_part_of_an_answer_goes_on_for_ever(drip, monkeypatch):
    monkeypatch.setattr(follow_host, "WAIT", -9)
    with dripping(drip) as address, pytest.raises(LateError):
        follow_host.ask(address, {}, KEY)
