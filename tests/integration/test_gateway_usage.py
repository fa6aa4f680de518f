# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens counted are tokens served: real HAProxies, the role's middleware and service, and engines that count too."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import sqlite3
import statistics
import threading
import time
import urllib.error
import urllib.request

import pytest

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, free_port, gateway, until
from tests.fakes.usage_service import service, stored

OTHER = "other-key-" + "0123456789abcdef" * 2
CHAT = "/v1/chat/completions"

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")


@contextlib.contextmanager
def site(tmp_path, names=("gw",), engines=2, teams=None, clients=None):
    """Yield gateways by name, and the engines behind them."""
    keys = [client(team="research"), client("bob", OTHER)]
    limits = {"teams": teams or {}, "clients": {"alice": {"team": "research"}, **(clients or {})}}
    with contextlib.ExitStack() as stack:
        behind = [stack.enter_context(counted_engine(tmp_path / f"run{n}")) for n in range(engines)]
        found = {}
        for name in names:
            directory = tmp_path / name
            directory.mkdir()
            port = free_port()
            options = {"tokens": True, "tokens_port": port, **limits}
            ports = [each.port for each in behind]
            found[name] = stack.enter_context(gateway(directory, ports, keys, options=options, name=name))
            budgets = found[name].decided["budgets"]
            stack.enter_context(service(tmp_path, name, behind, port, budgets=budgets))
        yield found, behind


def total(rows, name, **where):
    return sum(row[name] for row in rows if all(row[key] == value for key, value in where.items()))


def request(number, tokens):
    """Return path and body of one of many kinds of requests; each makes ``tokens``."""
    body = {
        "model": f"m{number % 3}",
        "messages": "word " * (number % 7),
        "max_tokens": tokens,
        "stream": number % 2 > 0,
    }
    path = (CHAT, CHAT, "/v1/completions", "/v1/messages", "/v1/responses")[number % 5]
    return path, json.dumps({**body, "max_output_tokens": tokens}).encode()


def test_the_sum_of_each_client_is_what_the_engines_count(tmp_path):
    with site(tmp_path, ("gw1", "gw2")) as (gateways, engines):
        first, second = gateways["gw1"], gateways["gw2"]
        until(lambda: all(each.state(f"gw--chat-{n}") == "UP" for each in gateways.values() for n in (1, 2)))
        sent = {KEY: 0, OTHER: 0}
        lock = threading.Lock()

        def ask(seed):
            chance = random.Random(seed)
            for number in range(25):
                key, tokens = chance.choice((KEY, OTHER)), chance.randint(1, 9)
                path, body = request(number, tokens)
                assert chance.choice((first, second)).ask("POST", path, key, body)[0] == 200
                with lock:
                    sent[key] += tokens

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        # In the middle of it.
        for each in (first, second, first):
            each.reload()
        for thread in threads:
            thread.join()
        until(lambda: total(stored(tmp_path, "gw1", "gw2"), "requests") == 150)
        rows = stored(tmp_path, "gw1", "gw2")
        assert total(rows, "completion", client="alice", team="research") == sent[KEY]
        assert total(rows, "completion", client="bob", team="") == sent[OTHER]
        assert total(rows, "completion") == sum(each.generated for each in engines)
        assert total(rows, "prompt") == sum(each.prompt for each in engines)
        assert total(rows, "aborted") == total(rows, "uncounted") == 0
        assert {(row["model"], row["gateway"]) for row in rows} == {("m", "gw1"), ("m", "gw2")}
        # Each gateway has all of it.
        until(lambda: stored(tmp_path, "gw1") == stored(tmp_path, "gw2") == rows)
        assert all(b"word" not in path.read_bytes() for path in tmp_path.rglob("*.sqlite*"))


def test_a_stream_that_clients_break_off_is_counted_as_far_as_it_came(tmp_path):
    with site(tmp_path) as (gateways, engines):
        found = gateways["gw"]
        for each in engines:
            each.pause = 0.002
        received = 0
        for number in range(6):
            with socket.create_connection(("127.0.0.1", found.port)) as connection:
                body = json.dumps({"model": "m", "messages": "word", "max_tokens": 10_000, "stream": True}).encode()
                lines = (
                    f"POST {CHAT} HTTP/1.1",
                    "Host: x",
                    f"Authorization: Bearer {KEY}",
                    f"Content-Length: {len(body)}",
                )
                connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
                got = b""
                while got.count(b"made") < 100 + number:
                    got += connection.recv(65536)
                received += got.count(b"made")
        until(lambda: total(stored(tmp_path, "gw"), "aborted") == 6)
        counted, made = total(stored(tmp_path, "gw"), "completion"), sum(each.generated for each in engines)
        # The engine makes one or two more before it notices.
        assert received <= counted <= made and made - counted <= 3 * 6
        assert total(stored(tmp_path, "gw"), "prompt") == 6


def test_a_client_cannot_name_another_client(tmp_path):
    with site(tmp_path, engines=1) as (gateways, engines):
        found, headers = gateways["gw"], {"X-Gateway-Usage": "gw mallory x", "x-gateway-usage-2": "y"}
        assert found.ask("POST", CHAT, KEY, request(1, 2)[1], **headers)[0] == 200
        until(lambda: stored(tmp_path, "gw"))
        assert [row["client"] for row in stored(tmp_path, "gw")] == ["alice"]
        sent = [value for name, value in engines[0].requests[-1][2].items() if name.startswith(b"x-gateway")]
        (words,) = (value.split() for value in sent)
        assert words[:3] == [b"gw", b"alice", b"research"]
        # The id of the request, and the time.
        assert len(words[3]) == 36 and abs(int(words[4]) - time.time()) < 60
        # Nor read what others used.
        assert found.ask("GET", "/gateway/usage", KEY)[0] == 404
        assert found.ask("GET", "/metrics/usage", KEY)[0] == 404


def test_an_engine_that_ends_and_a_service_that_ends_lose_nothing(tmp_path):
    run, port = tmp_path / "run", free_port()
    with counted_engine(run) as engine, gateway(tmp_path, [engine.port], options={"tokens": True}) as found:
        with service(tmp_path, "gw", [engine], port):
            assert found.ask("POST", CHAT, KEY, request(0, 3)[1])[0] == 200
            until(lambda: total(stored(tmp_path, "gw"), "completion") == 3)
        # Nobody reads.
        assert found.ask("POST", CHAT, KEY, request(0, 4)[1])[0] == 200
        where = engine.port
    with counted_engine(run, where) as engine, service(tmp_path, "gw", [engine], port):
        until(lambda: total(stored(tmp_path, "gw"), "completion") == 7)
        time.sleep(0.5)
        assert total(stored(tmp_path, "gw"), "requests") == 2


def test_prometheus_gets_the_tokens_from_the_gateway(tmp_path):
    with site(tmp_path, engines=1) as (gateways, _engines):
        found = gateways["gw"]
        assert found.ask("POST", CHAT, KEY, request(0, 3)[1])[0] == 200

        def page():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{found.stats_port}/metrics/usage", timeout=HANGS) as got:
                    return got.read().decode()
            except urllib.error.HTTPError:  # HAProxy has not found the service yet
                return ""

        labels = 'client="alice",team="research",model="m",kind="completion"'
        until(lambda: f"inference_usage_tokens_total{{{labels}}} 3" in page())


def test_counting_costs_less_than_a_millisecond_at_the_median(tmp_path):
    """Alternately with and without; the body has 64 KiB."""
    body = json.dumps({"model": "m", "messages": "word " * 13_000, "max_tokens": 8, "stream": True}).encode()
    times = {}
    with counted_engine(tmp_path / "run") as engine:
        for number in range(400):
            named = number % 2 > 0
            headers = {"X-Gateway-Usage": "gw alice research"} if named else {}
            asked = urllib.request.Request(f"http://127.0.0.1:{engine.port}{CHAT}", body, headers)
            started = time.perf_counter()
            with urllib.request.urlopen(asked, timeout=HANGS) as answer:
                answer.read()
            times.setdefault(named, []).append(time.perf_counter() - started)
    plain, counted = (statistics.median(times[named]) for named in (False, True))
    print(f"median {plain * 1000:.2f} ms, counted {counted * 1000:.2f} ms, ratio {counted / plain:.2f}")
    # A machine may be busy: then most requests wait for others, and a quarter of them for few.
    fast = {named: statistics.quantiles(values, n=4)[0] for named, values in times.items()}
    assert counted - plain < 0.001 or counted / plain < 1.25 or fast[True] - fast[False] < 0.001, fast


def until_refused(found, key, tokens, most):
    """Ask one request after the other until one is refused; return how many were answered, and the refusal."""
    for number in range(most):
        status, headers, body = found.ask("POST", CHAT, key, request(number * 2, tokens)[1])
        if status != 200:
            return number, (status, headers, json.loads(body)["error"])
    raise AssertionError(f"{most} requests were answered")


def test_a_team_over_its_budget_is_refused_within_one_request(tmp_path):
    with site(tmp_path, ("gw1", "gw2"), teams={"research": {"tokens_per_day": 100}}) as (gateways, engines):
        first, second = gateways["gw1"], gateways["gw2"]
        for each in engines:
            # A request takes half a second: so long, the program that counts may wait for a processor.
            each.pause = 0.025
        until(lambda: all(each.state(f"gw--chat-{n}") == "UP" for each in gateways.values() for n in (1, 2)))
        answered, (status, headers, error) = until_refused(first, KEY, 20, 20)
        made = sum(each.generated + each.prompt for each in engines)
        # At most one request came after the one that used it up.
        assert status == 429 and 100 <= made <= 100 + 2 * 30, answered
        assert error["code"] == "token_budget_exceeded"
        assert error["message"] == "The team research may use 100 tokens a day, and has used them."
        assert 0 < int(headers["retry-after"]) <= 86400
        # It holds at the other gateway, and after a reload; others, and what needs no tokens, go on.
        until(lambda: second.ask("POST", CHAT, KEY, request(0, 1)[1])[0] == 429)
        first.reload()
        until(lambda: first.ask("POST", CHAT, KEY, request(0, 1)[1])[0] == 429)
        assert first.ask("POST", CHAT, OTHER, request(0, 1)[1])[0] == 200
        assert first.ask("GET", "/v1/models", KEY)[0] != 429


def test_a_client_has_a_budget_of_its_own_for_a_minute(tmp_path):
    with site(tmp_path, engines=1, clients={"bob": {"tokens_per_minute": 20}}) as (gateways, engines):
        found, engines[0].pause = gateways["gw"], 0.01
        _answered, (status, headers, error) = until_refused(found, OTHER, 20, 20)
        assert status == 429 and "client bob may use 20 tokens a minute" in error["message"]
        assert 0 < int(headers["retry-after"]) <= 60
        assert found.ask("POST", CHAT, KEY, request(0, 1)[1])[0] == 200


def test_only_the_group_of_haproxy_may_change_what_keys_may_do(tmp_path):
    with site(tmp_path, engines=1) as (gateways, _engines):
        found = gateways["gw"]
        modes = {name: os.stat(found.paths[name]).st_mode & 0o777 for name in ("socket", "stats")}
        assert modes == {"socket": 0o600, "stats": 0o660}


def test_odd_keys_and_bodies_let_nobody_in_and_stop_no_count(tmp_path):
    with site(tmp_path, engines=1, teams={"research": {"tokens_per_day": 10**9}}) as (gateways, _engines):
        found = gateways["gw"]

        def raw(key, body):
            lines = (f"POST {CHAT} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", f"Content-Length: {len(body)}")
            with socket.create_connection(("127.0.0.1", found.port), timeout=HANGS) as connection, contextlib.suppress(
                OSError
            ):
                connection.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body)
                # To the end: a stream that is broken off counts less.
                return int(b"".join(iter(lambda: connection.recv(65536), b"")).split()[1])
            return 400

        fair = request(0, 1)[1]
        for key in (f"{KEY}\0", f"\0{KEY}", "k" * 100_000, f"{KEY} {KEY}", "|", "@research", ""):
            assert raw(key, fair) in (400, 401, 431), key[:50]
        assert stored(tmp_path, "gw") == []
        big = {"model": "m" * 1_000_000, "messages": "word", "max_tokens": 2}
        for stream in (False, True):
            assert raw(KEY, json.dumps({**big, "stream": stream}).encode()) == 200
        for body in (b"\0" * 1000, b'{"stream": tru', b"[" * 100_000 + b'"stream"'):
            raw(KEY, body)
        assert raw(KEY, fair) == 200
        until(lambda: total(stored(tmp_path, "gw"), "requests") == 3)
        rows = stored(tmp_path, "gw")
        assert total(rows, "completion") == 2 + 2 + 1 and max(len(row["model"]) for row in rows) <= 256


def test_requests_go_on_while_the_database_is_locked_and_count_afterwards(tmp_path):
    with site(tmp_path, engines=1) as (gateways, _engines):
        found = gateways["gw"]
        assert found.ask("POST", CHAT, KEY, request(0, 1)[1])[0] == 200
        until(lambda: total(stored(tmp_path, "gw"), "requests") == 1)
        other = sqlite3.connect(tmp_path / "gw.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert all(found.ask("POST", CHAT, KEY, request(0, 1)[1])[0] == 200 for _number in range(20))
        # Longer than the service waits for the lock.
        time.sleep(3)
        assert total(stored(tmp_path, "gw"), "requests") == 1
        other.execute("ROLLBACK")
        other.close()
        until(lambda: total(stored(tmp_path, "gw"), "requests") == 21)
