# SPDX-License-Identifier: GPL-3.0-or-later
"""A real HAProxy lets requests wait by class and team, and refuses the lowest class first."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from tests.fakes.gateways import (
    HANGS,
    HAPROXY,
    RunningGateway,
    client,
    early_in_a_minute,
    gateway,
    plan,
    program,
    until,
)  # fmt: skip
from tests.hostile.http2 import Http2
from tests.integration.gateway_engines import agent, engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
TEAMS = {"product": {"class": "gold"}, "research": {}, "noisy": {}, "nightly": {"class": "batch"}}
# Clients by name, with their teams; lone has none.
CLIENTS = {"prod": "product", "res": "research", "loud": "noisy", "louder": "noisy", "night": "nightly", "lone": ""}


def key_of(name):
    return f"key-of-{name}-".ljust(40, "x")


class Waiting:
    """Requests that have been sent, with their answers, which come in any order."""

    def __init__(self, found, server):
        self.found, self.server, self.servers = found, server, [server]
        self.answers, self.threads = [], []

    def send(self, name, number=1, **headers):
        """Send requests, each after the one before waits, is refused or is in the engine."""
        for _n in range(number):
            before = self.settled()
            self.threads.append(threading.Thread(target=self._ask, args=(name, headers, len(self.threads))))
            self.threads[-1].start()
            until(lambda: self.settled() > before)  # noqa: B023

    def _ask(self, name, headers, number):
        body = json.dumps({"messages": [], "wait": 1, "user": name}).encode()
        self.answers.append((name, *self.found.ask("POST", CHAT, key_of(name), body, **headers), number))

    def known(self):
        """Return how many requests HAProxy has admitted or refused."""
        return sum(value for line, value in metrics(self.found).items() if "_requests_total" in line)

    def settled(self):
        """Return how many requests are refused, wait in HAProxy, or have reached an engine."""
        rows = self.found.stats()
        queued = sum(int(row["qcur"] or 0) for row in rows)
        reached = sum(len(server.users) for server in self.servers)
        return queued + reached + [answer[1] for answer in self.answers].count(429)

    def free(self):
        """Let the engine answer all, and return the clients in the order in which it got their requests.

        One after the other, because of two at a time its second thread may be the first one to run.
        """
        self.found.tell("set maxconn server chat/gw--chat-1 1")
        self.server.freed.set()
        for thread in self.threads:
            thread.join()
        return self.server.users

    def statuses(self):
        """Return clients and statuses by the order in which the requests were sent."""
        return [answer[:2] for answer in sorted(self.answers, key=lambda answer: answer[-1])]


def metrics(found):
    """Return the gateway's figures of admission by metric and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{found.stats_port}/metrics/admission", timeout=HANGS) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


@contextlib.contextmanager
def held_back(directory, mode="auto", places=2, **more):
    """Yield requests to come, in front of an engine with so many places that answers when it is freed."""
    clients = [client(name, key_of(name), team=team) for name, team in CLIENTS.items()]
    clients += [client(f"key{number}", key_of(f"key{number}"), team="research") for number in range(14)]
    clients += [client("counted", key_of("counted"), team="product", rate=2)]
    with engine() as server:
        args = {"max-num-seqs": places, **more.pop("args", {})}
        plans = {"chat-1": plan(server.server_port, args=args)}
        options = {"admission": mode, "teams": TEAMS, **more.pop("options", {})}
        with gateway(directory, [], clients, plans=plans, options=options, **more) as found:
            until(lambda: found.state("gw--chat-1") == "UP")
            yield Waiting(found, server)


def test_the_class_of_the_team_decides_who_is_served_next(tmp_path):
    with held_back(tmp_path, places=1) as waiting:
        waiting.send("lone")
        for name in ("night", "res", "prod"):
            waiting.send(name)
        assert waiting.free() == ["lone", "prod", "res", "night"]


def test_the_highest_class_gets_a_place_that_is_kept_while_all_others_are_taken(tmp_path):
    with held_back(tmp_path, places=32) as waiting:
        found, server = waiting.found, waiting.server
        waiting.send("prod")
        waiting.send("night", 30)
        waiting.send("res", 4)
        assert len(server.users) == 31
        waiting.send("prod", 2)
        until(lambda: server.users.count("prod") == 2)
        time.sleep(0.5)
        # One place was kept. The others wait for it in vain.
        assert server.users[31:] == ["prod"] and found.stat("BACKEND", "qcur") == "5"
        assert (found.stat("gw--chat-1", "scur"), found.stat("gw--chat-1", "slim")) == ("32", "31")
        waiting.free()
        assert server.users[32] == "prod"
        assert {status for _name, status in waiting.statuses()} == {200}
        assert "Lua" not in found.log.read_text()


def test_no_place_is_kept_for_a_class_that_sends_nothing(tmp_path):
    with held_back(tmp_path, places=32) as waiting:
        waiting.send("night", 34)
        until(lambda: len(waiting.server.users) == 32)
        time.sleep(0.5)
        assert waiting.found.stat("BACKEND", "qcur") == "2" and len(waiting.server.users) == 32
        waiting.send("prod")
        assert waiting.free()[32] == "prod"


def test_what_waited_and_left_the_queue_leaves_no_place_to_a_lower_class(tmp_path):
    with held_back(tmp_path, places=32) as waiting:
        found, server = waiting.found, waiting.server
        waiting.send("prod")
        waiting.send("night", 30)
        waiting.send("prod")
        until(lambda: server.users.count("prod") == 2)
        waiting.send("res", 2)
        waiting.send("prod", 2)
        # Places become free, and the highest class has all that it asks for.
        found.tell("set maxconn server chat/gw--chat-1 34")
        until(lambda: server.users[32:] == ["prod", "prod"])
        found.tell("set maxconn server chat/gw--chat-1 33")
        time.sleep(0.5)
        assert found.stat("BACKEND", "qcur") == "2"
        waiting.free()


def test_a_quiet_team_is_served_before_the_rest_of_a_noisy_one(tmp_path):
    with held_back(tmp_path, places=2) as waiting:
        waiting.send("loud", 6)
        waiting.send("res")
        names = waiting.free()
        # Two ran already.
        assert names.index("res") <= 3, names


def test_a_quiet_client_is_served_before_the_rest_of_a_noisy_one_of_its_team(tmp_path):
    with held_back(tmp_path, places=2) as waiting:
        waiting.send("loud", 6)
        waiting.send("louder")
        names = waiting.free()
        assert names.index("louder") <= 4, names


def test_the_lowest_class_is_refused_first_and_says_when_to_come_again(tmp_path):
    with held_back(tmp_path, places=2) as waiting:
        waiting.send("night", 5)
        waiting.send("loud", 7)
        waiting.send("prod", 11)
        until(lambda: len(waiting.answers) == 3)
        assert waiting.statuses() == [("night", 429), ("loud", 429), ("prod", 429)]
        after = [answer[2].get("retry-after") for answer in waiting.answers]
        assert after == ["10", "2", "1"]
        error = json.loads(waiting.answers[0][3])["error"]
        assert error["code"] == "overloaded" and "class batch" in error["message"]
        waiting.free()
        assert [status for _name, status in waiting.statuses()].count(429) == 3


def test_a_quiet_team_is_not_refused_because_of_a_noisy_one_and_batch_is_where_nothing_is_left(tmp_path):
    with held_back(tmp_path, places=2) as waiting:
        waiting.send("loud", 7)
        waiting.send("res")
        waiting.send("night")
        waiting.send("prod", 2)
        assert waiting.statuses() == [("loud", 429)]
        # Seven wait, three times the bound of the class.
        waiting.send("night")
        assert waiting.statuses() == [("loud", 429), ("night", 429)]
        waiting.free()
        assert [status for _name, status in waiting.statuses()].count(200) == 10


def test_requests_of_one_connection_count_as_any_others(tmp_path):
    with held_back(tmp_path, places=2) as waiting, Http2(waiting.found.port) as connection:
        body = json.dumps({"messages": [], "wait": 1}).encode()
        headers = [("authorization", f"Bearer {key_of('night')}")]
        streams = [connection.request("POST", CHAT, headers, body) for _n in range(20)]
        connection.read(lambda: len(connection.statuses) == 16)
        # Two run, two wait.
        assert list(connection.statuses.values()) == [429] * 16
        assert connection.resets == {}
        waiting.server.freed.set()
        assert sorted(connection.status(stream) for stream in streams) == [200] * 4 + [429] * 16


def test_a_client_that_goes_away_leaves_the_queue(tmp_path):
    with held_back(tmp_path, places=1) as waiting:
        waiting.send("lone")
        with Http2(waiting.found.port) as connection:
            headers = [("authorization", f"Bearer {key_of('night')}")]
            connection.request("POST", CHAT, headers, b'{"messages": []}')
            until(lambda: waiting.found.stat("BACKEND", "qcur") == "1")
        until(lambda: waiting.found.stat("BACKEND", "qcur") == "0")
        label = 'inference_gateway_admission_requests{service="chat",class="batch",team="nightly"}'
        until(lambda: metrics(waiting.found)[label] == 0)
        waiting.free()
        assert len(waiting.server.asked) == 1


@pytest.mark.parametrize(("policy", "expected"), [("priority", ["-10", "0", "10"]), ("fcfs", ["0"] * 3)])
def test_an_engine_gets_the_class_where_it_orders_its_queue_and_no_client_chooses_it(tmp_path, policy, expected):
    with held_back(tmp_path, args={"scheduling-policy": policy}) as waiting:
        waiting.server.freed.set()
        for name in ("prod", "res", "night"):
            waiting.send(name, **{"X-Vllm-Priority": "-1000", "X-Class": "gold"})
            waiting.threads[-1].join()
        got = [{k.lower(): v for k, v in headers.items()} for _m, _p, headers, _n in waiting.server.asked]
        assert [headers["x-vllm-priority"] for headers in got] == expected
        assert all("x-class" not in headers for headers in got)


def test_shadow_refuses_nobody_and_reports_whom_it_would_have(tmp_path):
    with held_back(tmp_path, "shadow") as waiting:
        waiting.send("night", 8)
        until(lambda: len(waiting.server.asked) == 8)
        found = metrics(waiting.found)
        labels = 'service="chat",class="batch",team="nightly",decision='
        decided = [found[f'inference_gateway_admission_requests_total{{{labels}"{word}"}}'] for word in
                   ("now", "waits", "refused")]  # fmt: skip
        assert decided == [2, 2, 4]
        waiting.free()
        assert waiting.statuses() == [("night", 200)] * 8
        until(lambda: waiting.found.log.read_text().count("status=200") == 8)
        assert waiting.found.log.read_text().count('class="batch" admission="refused"') == 4


class Slow:
    """Requests over HTTP/1.1 whose heads and first bytes are there, and whose bodies come when the test sends them."""

    def __init__(self, found, name, number):
        self.body = json.dumps({"messages": [], "wait": 1}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer {key_of(name)}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
        self.sockets = [socket.create_connection(("127.0.0.1", found.port), HANGS) for _n in range(number)]
        for each in self.sockets:
            each.sendall(head.encode() + self.body[:5])

    def finish(self):
        for each in self.sockets:
            each.sendall(self.body[5:])

    def close(self):
        for each in self.sockets:
            each.close()


@pytest.mark.parametrize("affinity", ["none", "prefix"])
def test_who_has_not_sent_its_body_has_no_place_and_locks_nobody_out(tmp_path, affinity):
    with held_back(tmp_path, options={"services": {"chat": {"affinity": affinity}}}) as waiting:
        slow = Slow(waiting.found, "night", 20)
        time.sleep(1)
        assert waiting.known() == 0
        waiting.server.freed.set()
        # The places are free for others meanwhile.
        waiting.send("prod", 3)
        for thread in waiting.threads:
            thread.join()
        assert waiting.statuses() == [("prod", 200)] * 3
        waiting.server.freed.clear()
        slow.finish()
        until(lambda: waiting.known() == 23)
        # Two have the places and two wait. Each thread of HAProxy may decide about one at the same moment.
        found = metrics(waiting.found)
        labels = 'inference_gateway_admission_requests_total{service="chat",class="batch",team="nightly",decision='
        taken, waits, refused = (found[f'{labels}"{word}"}}'] for word in ("now", "waits", "refused"))
        assert taken <= 2 + os.cpu_count() and taken + waits <= 4 + os.cpu_count() and taken + waits + refused == 20
        waiting.send("prod", 2)
        waiting.free()
        assert waiting.statuses() == [("prod", 200)] * 5
        slow.close()


def test_many_keys_of_a_team_get_no_more_than_half_as_much_again(tmp_path):
    with held_back(tmp_path, places=2) as waiting:
        for number in range(14):
            waiting.send(f"key{number}")
        # Two run, and four may wait; three more are first requests of quiet clients.
        assert waiting.statuses() == [("key9", 429), ("key10", 429), ("key11", 429), ("key12", 429), ("key13", 429)]
        waiting.free()


def test_the_queue_of_lower_classes_refuses_nobody(tmp_path):
    with held_back(tmp_path, places=16) as waiting:
        waiting.send("night", 32)
        # The places fall to one: 15 or so of batch wait, more than twelve times as many.
        waiting.found.tell("set maxconn server chat/gw--chat-1 1")
        waiting.server.freed.set()
        waiting.server.freed.clear()
        until(lambda: waiting.found.stat("gw--chat-1", "scur") == "1")
        assert int(waiting.found.stat("BACKEND", "qcur")) + int(waiting.found.stat("gw--chat-1", "qcur")) >= 12
        waiting.send("prod", 2)
        assert ("prod", 429) not in waiting.statuses()
        waiting.free()


@pytest.mark.parametrize("affinity", ["none", "prefix"])
def test_admission_works_beside_the_other_programs_in_lua(tmp_path, affinity):
    options = {"services": {"chat": {"affinity": affinity}}}
    plans = {"long-1": plan(1, models=("long",), of="long")}
    with held_back(tmp_path, options=options) as waiting:
        waiting.found.more["plans"] = {**waiting.found.more["plans"], **plans}
        waiting.found.write()
        waiting.found.reload()
        until(lambda: waiting.found.state("gw--chat-1") == "UP")
        waiting.send("night", 5)
        until(lambda: ("night", 429) in waiting.statuses())
        waiting.free()
        assert "Lua function" not in waiting.found.log.read_text()


def test_the_limit_of_a_minute_is_kept(tmp_path):
    with held_back(tmp_path) as waiting:
        waiting.server.freed.set()
        early_in_a_minute(10)
        asked = [waiting.found.ask("POST", CHAT, key_of("counted")) for _n in range(4)]
        assert [status for status, *_more in asked] == [200, 200, 429, 429]
        assert json.loads(asked[2][2])["error"]["code"] == "rate_limit_exceeded"
        assert waiting.found.ask("POST", CHAT, key_of("prod"))[0] == 200


def test_those_that_wait_are_served_over_a_reload(tmp_path):
    with held_back(tmp_path, places=1) as waiting:
        waiting.send("lone")
        waiting.send("night", 1)
        waiting.send("prod", 2)
        waiting.found.reload()
        waiting.server.freed.set()
        waiting.free()
        assert sorted(waiting.statuses()) == [("lone", 200), ("night", 200), ("prod", 200), ("prod", 200)]


def test_after_a_reload_the_two_workers_share_the_places(tmp_path):
    with held_back(tmp_path, places=16) as waiting:
        found, server = waiting.found, waiting.server
        with agent(tmp_path, found.agent_port, [server.server_port], 60, places=[16, 16]):
            # The agent has seen this worker.
            until(lambda: found.stat("gw--chat-1", "agent_status") == "L7OK")
            until(lambda: found.stat("gw--chat-1", "slim") == "16")
            waiting.send("night", 32)
            replaced = re.search(r"(?m)^Pid: (\d+)$", found.tell("show info"))[1]
            found.reload()
            # No request fills the engine at once: the bound of the new worker begins at a sixteenth.
            assert int(found.stat("gw--chat-1", "slim")) < 16
            # That it has so few places refuses nobody: one of 16 is taken, and 16 may wait.
            waiting.send("night", 16)
            assert waiting.answers == []
            until(lambda: slim_of_replaced(tmp_path, replaced) == "8")
            server.freed.set()
            server.freed.clear()
            until(lambda: found.stat("gw--chat-1", "slim") == "16")
            # 16 are answered, the replaced worker has sent no more than its half, and the new one all that it has.
            until(lambda: len(server.users) == 16 + 8 + 16)
            waiting.free()
        assert waiting.statuses() == [("night", 200)] * 48


def test_after_a_restart_the_worker_has_all_places(tmp_path):
    with held_back(tmp_path, places=16) as waiting:
        found, server = waiting.found, waiting.server
        with agent(tmp_path, found.agent_port, [server.server_port], 60, places=[16, 16]):
            until(lambda: found.stat("gw--chat-1", "agent_status") == "L7OK")
            found.stop()
            found.start()
            until(lambda: found.stat("gw--chat-1", "agent_status") == "L7OK")
            # The first answer has come; a bound that rises would have begun at 1.
            assert found.stat("gw--chat-1", "slim") == "16"


def slim_of_replaced(directory, pid):
    """Return the bound of a server in a replaced worker, which only the master asks."""
    with socket.socket(socket.AF_UNIX) as master:
        master.settimeout(HANGS)
        master.connect(str(directory / "master"))
        master.sendall(f"@!{pid} show stat\n".encode())
        master.shutdown(socket.SHUT_WR)
        text = b"".join(iter(lambda: master.recv(65536), b"")).decode()
    rows = csv.DictReader(text.removeprefix("# ").splitlines())
    return next(row["slim"] for row in rows if row["svname"] == "gw--chat-1")


def test_a_server_that_ends_leaves_its_queue_to_the_others(tmp_path):
    with engine() as other, held_back(tmp_path, places=1) as waiting:
        plans = {"chat-1": plan(waiting.server.server_port, args={"max-num-seqs": 1}),
                 "chat-2": plan(other.server_port, args={"max-num-seqs": 1})}  # fmt: skip
        waiting.found.more["plans"] = plans
        waiting.found.write()
        waiting.found.reload()
        until(lambda: waiting.found.state("gw--chat-2") == "UP")
        waiting.servers.append(other)
        waiting.send("res", 5)
        waiting.found.tell("set server chat/gw--chat-1 state maint")
        other.freed.set()
        until(lambda: len(waiting.answers) == 4)
        waiting.free()
        assert waiting.statuses() == [("res", 200)] * 5


def test_the_agent_makes_a_bound_smaller_that_the_engine_cannot_take(tmp_path):
    with held_back(tmp_path, places=6) as waiting:
        found, server = waiting.found, waiting.server
        assert found.decided["agent"][f"127.0.0.1:{server.server_port}"]["places"] == [6, 6]
        waiting.send("res", 8)
        with agent(tmp_path, found.agent_port, [server.server_port], 60, places=[6, 6]):
            until(lambda: found.stat("gw--chat-1", "agent_status") == "L7OK")
            until(lambda: found.stat("gw--chat-1", "slim") == "6")
            server.metrics.update({"vllm:num_requests_running": 2.0, "vllm:num_requests_waiting": 4.0})
            until(lambda: found.stat("gw--chat-1", "slim") == "2")
            assert (found.stat("gw--chat-1", "scur"), found.state("gw--chat-1")) == ("6", "UP")
            # Nothing waits in it any more.
            server.metrics.update({"vllm:num_requests_running": 6.0, "vllm:num_requests_waiting": 0.0})
            until(lambda: found.stat("gw--chat-1", "slim") == "6")
            waiting.free()
        assert waiting.statuses() == [("res", 200)] * 8


def test_a_batch_file_is_answered_line_by_line_while_others_are_served(tmp_path):
    with held_back(tmp_path) as waiting:
        source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
        lines = [
            {"custom_id": f"r{n}", "method": "POST", "url": CHAT, "body": {"messages": [], "model": "m"}}
            for n in range(50)
        ]
        source.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        (tmp_path / "key").write_text(key_of("night"))
        words = ("--url", waiting.found.url, "--key-file", tmp_path / "key", "--at-once", "4", source, target)
        command, environ = program("gateway-batch", *words)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stderr.splitlines()[-1] == "50 of 50 answered", done.stderr
        found = [json.loads(line) for line in target.read_text().splitlines()]
        assert {entry["custom_id"] for entry in found} == {line["custom_id"] for line in lines} and len(found) == 50
        assert all(entry["response"]["status_code"] == 200 for entry in found)
        label = 'inference_gateway_admission_requests_total{service="chat",class="batch",team="nightly",decision='
        assert sum(value for line, value in metrics(waiting.found).items() if line.startswith(label)) >= 50


@pytest.mark.parametrize("mode", ["auto", "shadow"])
@pytest.mark.parametrize("access", ["text", "json"])
@pytest.mark.parametrize("affinity", ["none", "prefix"])
@pytest.mark.parametrize("is_open", [True, False])
def test_every_form_of_a_gateway_is_valid_with_it(tmp_path, mode, access, affinity, is_open):
    decode = {"group": {"role": "decode", "router": {"port": 9000}}}
    plans = {
        "chat-1": plan(8000, args={"scheduling-policy": "priority"}),
        "long-1": plan(8001, models=("long",), of="long", **decode),
    }
    who = {"clients": {}, "teams": {}, "open": True} if is_open else {"teams": TEAMS}
    options = {"admission": mode, "services": {"chat": {"affinity": affinity}}, **who}
    found = RunningGateway(
        tmp_path, [], [client()], plans=plans, options=options, variables={"gateway_access_log": access}
    )
    warnings = [line for line in found.check().splitlines() if "WARNING" in line]
    # HAProxy 3.0 does not warn of a state file that is not there yet.
    assert [line for line in warnings if "state file" not in line] == []


def test_without_keys_all_are_one_team(tmp_path):
    options = {"open": True, "clients": {}, "teams": {}}
    with held_back(tmp_path, options=options) as waiting:
        waiting.send("lone", 7)
        assert waiting.statuses() == [("lone", 429)]
        assert (
            metrics(waiting.found)['inference_gateway_admission_requests{service="chat",class="standard",team="-"}']
            == 6
        )
        waiting.free()
