# SPDX-License-Identifier: GPL-3.0-or-later
"""Two real gateways under constant load: faults and attacks lose no request, let nobody in, and change no sum."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sqlite3
import subprocess
import time
import urllib.request

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, client, free_port, gateway, program, until
from tests.integration import gateway_attacks
from tests.integration.gateway_attacks import Attacks
from tests.integration.gateway_engines import agent
from tests.integration.gateway_load import CHAT, BreakOff, Clock, Load, ReadSlowly, Requests, instances
from tests.integration.gateway_turns import kill
from tests.integration.test_gateway_changes import run_keys
from tests.integration.test_gateway_usage import stored, total

TEAMS = {"alice": "research", "bob": "research", "carol": "finance", "slow": "finance", "breaker": "", "mallory": ""}
NAMES = ("gw1", "gw2")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy"),
]


def key_of(name, turn=0):
    return f"key-of-{name}-{turn}-".ljust(40, "x")


def clients(*turns):
    """Return all clients, with their keys of these turns."""
    keys = {name: tuple(client(name, key_of(name, turn)).sha256[0] for turn in turns) for name in TEAMS}
    return [type(client())(name, keys[name], team=team) for name, team in TEAMS.items()]


class Service:
    """The program that stores tokens, with a clock of its own; a full disk is a limit of the size of its files."""

    def __init__(self, directory, found, engines, port):
        self.found, self.clock, self.file = found, Clock(directory / "clock"), directory / "usage.json"
        self.database = directory.parent / f"{directory.name}.sqlite"
        config = {
            "gateway": directory.name, "gateways": list(NAMES),
            "servers": {
                f"127.0.0.1:{each.port}": {"name": f"e{n}", "service": "chat", "models": ["m"]}
                for n, each in enumerate(engines)
            },
            "database": str(self.database), "months": 13, "port": port, "log": False,
            "budgets": found.decided["budgets"], "map": f"{found.paths['maps']}/over.map",
            "secret": found.paths["secret"],
            "stats": found.paths["stats"],
        }  # fmt: skip
        self.file.write_text(json.dumps(config))
        self.process = None

    def start(self):
        command, environ = program("gateway-usage", self.file)
        environ = {**environ, **self.clock.environ}
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait(HANGS)

    def says(self, line):
        """Return whether Prometheus gets this line through the gateway."""
        url = f"http://127.0.0.1:{self.found.stats_port}/metrics/usage"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return line in answer.read().decode()
        return False


def limit_files(process, size):
    """Limit the size of the files that a process may write, as a full disk does; None is no limit."""
    size = resource.RLIM_INFINITY if size is None else size
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextlib.contextmanager
def site(tmp_path, number=3):
    """Yield two gateways by name, their services, and the engines behind them."""
    limits = {"teams": {"research": {"tokens_per_day": 10**9}}, "clients": {"alice": {"team": "research"}}}
    with contextlib.ExitStack() as stack:
        engines = stack.enter_context(instances(tmp_path, number))
        ports = [each.port for each in engines]
        gateways, services = {}, {}
        for name in NAMES:
            directory, port, watch = tmp_path / name, free_port(), free_port()
            directory.mkdir()
            options = {"tokens": True, "tokens_port": port, **limits}
            more = {"options": options, "name": name, "agent_port": watch}
            found = gateways[name] = stack.enter_context(gateway(directory, ports, clients(0), **more))
            stack.enter_context(agent(directory, watch, ports))
            services[name] = Service(directory, found, engines, port)
            services[name].start()
            stack.callback(services[name].end)
        until(lambda: all(g.state(f"gw--chat-{n + 1}") == "UP" for g in gateways.values() for n in range(number)))
        yield gateways, services, engines


def answered_more(load, number):
    """Wait until the clients got so many answers more."""
    before = load.answered
    until(lambda: load.failures or load.answered >= before + number)


def records(tmp_path):
    """Return all records of all instances."""
    lines = [line for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines() if line]
    return [json.loads(line) for line in lines]


def reload_all(load, gateways, _services, _engines):
    for name in ("gw1", "gw2", "gw1"):
        gateways[name].reload()
        answered_more(load, 20)


def rotate_keys(load, gateways, _services, _engines):
    for found in gateways.values():
        assert "changed" in run_keys(found, clients(0, 1))
    for each in load.clients:
        if isinstance(each, Requests):
            each.key = key_of(each.name, 1)
    # Their requests with the former key have begun.
    answered_more(load, 40)
    for found in gateways.values():
        run_keys(found, clients(1))
        assert found.ask("POST", CHAT, key_of("alice"))[0] == 401


def lock_and_fill_the_stores(load, _gateways, services, _engines):
    other = sqlite3.connect(services["gw1"].database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    limit_files(services["gw2"].process, 1)
    for each in services.values():
        until(lambda: each.says("inference_usage_store_up 0"))  # noqa: B023
    answered_more(load, 100)
    other.execute("ROLLBACK")
    other.close()
    limit_files(services["gw2"].process, None)
    for each in services.values():
        until(lambda: each.says("inference_usage_store_up 1"))  # noqa: B023


def jump_clocks(load, _gateways, services, engines):
    for clock, seconds in (
        (engines[0].clock, 3 * 86400),
        (engines[1].clock, -40 * 86400),
        (services["gw1"].clock, 7200),
        (services["gw2"].clock, -7200),
    ):
        clock.jump(seconds)
        answered_more(load, 60)
    for clock in (engines[0].clock, engines[1].clock, services["gw1"].clock, services["gw2"].clock):
        clock.jump(0)


def end_an_engine(load, _gateways, _services, engines):
    load.dies("engine")
    engines[2].end()
    answered_more(load, 60)
    engines[2].start()


def end_a_gateway(load, gateways, services, _engines):
    load.dies("gw1")
    services["gw1"].end()
    kill(gateways["gw1"])
    answered_more(load, 100)
    gateways["gw1"].start()
    services["gw1"].start()
    load.alive.append("gw1")


FAULTS = (reload_all, rotate_keys, lock_and_fill_the_stores, jump_clocks, end_an_engine, end_a_gateway)


def check_sums(tmp_path, load, engines):
    """Compare what the gateways stored with what the engines and the clients counted."""
    ledger = [entry for each in engines for entry in each.ledger]
    complete = [record for record in records(tmp_path) if record["state"] == "complete"]
    rows = stored(tmp_path, *NAMES)
    for name, team in TEAMS.items():
        own = [entry for entry in ledger if entry["client"] == name]
        done = [entry for entry in own if entry["done"]]
        for kind, counted in (("prompt", "prompt"), ("completion", "made")):
            made = sum(entry[counted] for entry in done)
            assert sum(record[kind] for record in complete if record["client"] == name) == made, (name, kind)
            # What was broken off counts as far as it was sent.
            found, broken = total(rows, kind, client=name, team=team), sum(e[counted] for e in own) - made
            assert made <= found <= made + broken, (name, kind)
            if name == "breaker":
                assert found >= 0.99 * (made + broken)
        print(f"{name}: {len(done)} of {len(own)} requests complete, {total(rows, 'completion', client=name)} tokens")
    for each in load.clients:
        if isinstance(each, Requests) and each.name != "breaker":
            made = sum(e["made"] for e in ledger if e["client"] == each.name and e["done"])
            # The engine may have ended an answer that a dead gateway did not pass on.
            assert each.completion <= made <= each.completion + 9 * load.lost + ReadSlowly.TOKENS * 2, each.name


def test_faults_under_load_fail_no_request_and_change_no_sum(tmp_path):
    with site(tmp_path) as (gateways, services, engines):
        load = Load(gateways)
        busy = [Requests(load, name, key_of(name), seed) for seed, name in enumerate(("alice", "bob", "carol"))]
        busy += [BreakOff(load, "breaker", key_of("breaker")), ReadSlowly(load, "slow", key_of("slow"))]
        with load.running(busy):
            answered_more(load, 50)
            for fault in FAULTS:
                began, before = time.monotonic(), load.answered
                fault(load, gateways, services, engines)
                answered_more(load, 60)
                took = time.monotonic() - began
                print(f"{fault.__name__}: {load.answered - before} answered in {took:.0f} s, lost {load.lost}")
                assert load.failures == []
        # Each busy client, the slow one and the one that breaks off lose at most one to each death.
        assert load.lost <= len(busy) * len(load.deaths), load.lost
        until(lambda: sum(row["requests"] for row in stored(tmp_path, "gw1")) >= len(records(tmp_path)))
        until(lambda: stored(tmp_path, "gw1") == stored(tmp_path, "gw2"))
        check_sums(tmp_path, load, engines)


def test_attacks_under_load_let_nobody_in_and_change_no_sum(tmp_path):
    with site(tmp_path) as (gateways, _services, engines):
        load = Load(gateways, seconds_between=0.01)
        ended, mallory = "ended-key-" + "0" * 32, key_of("mallory")
        outside = Attacks(load, lambda: gateway_attacks.without_key(ended), 0)
        inside = Attacks(load, lambda: gateway_attacks.with_key(mallory), 1)
        lines = [f"Authorization: Bearer {mallory}", "Connection: close"]
        bodies = [
            gateway_attacks.head(path, [*lines, f"Content-Length: {len(body)}"]) + body
            for body in gateway_attacks.odd_bodies()
            for path in (CHAT, "/v1/responses", "/v1/messages")
        ]
        odd = Attacks(load, lambda: bodies, 1)
        busy = [Requests(load, name, key_of(name), seed) for seed, name in enumerate(("alice", "bob", "carol"))]
        with load.running([*busy, outside, inside, odd]):
            until(lambda: load.failures or all(each.rounds for each in (outside, inside, odd)), 300)
            answered_more(load, 100)
        assert load.failures == [] and load.lost == 0
        assert outside.got_in == inside.got_in == odd.got_in == []
        assert 401 in outside.seen and 200 not in outside.seen and 200 in odd.seen, (outside.seen, odd.seen)
        ledger = [entry for each in engines for entry in each.ledger]
        assert [entry for entry in ledger if entry["intruder"]] == []
        assert {entry["client"] for entry in ledger} <= set(TEAMS)
        until(lambda: sum(row["requests"] for row in stored(tmp_path, "gw1")) >= len(records(tmp_path)))
        until(lambda: stored(tmp_path, "gw1") == stored(tmp_path, "gw2"))
        check_sums(tmp_path, load, engines)


def test_records_that_an_instance_could_not_write_are_named_by_number(tmp_path):
    with site(tmp_path, 1) as (gateways, services, engines):
        load = Load(gateways)
        with load.running([Requests(load, "alice", key_of("alice"))]):
            answered_more(load, 20)
            limit_files(engines[0].process, 1)
            answered_more(load, 50)
            limit_files(engines[0].process, None)
            answered_more(load, 20)
        assert load.failures == []
        until(lambda: sum(row["requests"] for row in stored(tmp_path, "gw1")) >= len(records(tmp_path)))
        missing = len(engines[0].ledger) - len(records(tmp_path))
        assert missing >= 50
        for each in services.values():
            until(lambda: each.says(f"inference_usage_missing_records_total {missing}\n"))  # noqa: B023
