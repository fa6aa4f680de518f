# SPDX-License-Identifier: GPL-3.0-or-later
"""The queue of requests in an instance that shares its chips, without a server."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import operator_host, residents_host

TOKEN = "a" * 32


class Engine:
    """Answers a request when ``end`` is set, and calls for operators at once."""

    def __init__(self):
        self.calls, self.bodies, self.status = [], [], 200
        self.end = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.calls.append(scope["path"])
        if scope["type"] == "websocket":
            return
        if scope["path"] == "/v1/completions":
            body = b""
            while (message := await receive())["type"] == "http.request":
                body += message["body"]
                if not message["more_body"]:
                    break
            self.bodies.append(body)
            await self.end.wait()
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


class Client:
    """A request; its parts come when ``give`` is called."""

    def __init__(self, gate, path, method="POST", query="", token=None, kind="http"):
        self.parts, self.sent = asyncio.Queue(), []
        headers = [(b"operator-token", token.encode())] if token else []
        scope = {"type": kind, "path": path, "method": method, "query_string": query.encode(), "headers": headers}
        call = gate.obey if kind == "http" and gate.is_own(scope) else gate
        self.task = asyncio.ensure_future(call(scope, self.parts.get, self.send))

    async def send(self, message):
        self.sent.append(message)

    def give(self, body=b"", more=False):
        self.parts.put_nowait({"type": "http.request", "body": body, "more_body": more})
        return self

    def go(self):
        self.parts.put_nowait({"type": "http.disconnect"})

    async def answer(self, seconds=5):
        await asyncio.wait_for(self.task, seconds)
        return self.sent[0]["status"] if self.sent else None


def run(monkeypatch, tmp_path, scenario):
    """Run a scenario with a gate and its engine."""
    monkeypatch.setenv(operator_host.VARIABLE, "1")
    (tmp_path / "operator").write_text(TOKEN)

    async def main():
        engine = Engine()
        gate = residents_host.Gate(engine, operator_host.Guard(str(tmp_path)), str(tmp_path / "closed"))
        await scenario(gate, engine)

    asyncio.run(asyncio.wait_for(main(), 20))


async def status_of(gate, query=""):
    client = Client(gate, "/residents", "GET", query, TOKEN).give()
    assert await client.answer() == 200
    return json.loads(client.sent[1]["body"])


def operator(gate, path, query=""):
    return Client(gate, path, "POST", query, TOKEN).give()


async def until(true):
    while not true():
        await asyncio.sleep(0.01)


def test_a_sleep_waits_for_running_requests_and_lets_no_other_one_in(monkeypatch, tmp_path):
    async def scenario(gate, engine):
        first = Client(gate, "/v1/completions").give(b"1")
        await until(lambda: engine.bodies == [b"1"])
        sleep = operator(gate, "/sleep")
        await until(lambda: gate.closed)
        second = Client(gate, "/v1/completions").give(b"2", more=True).give(b"3")
        await asyncio.sleep(0.1)
        assert engine.calls == ["/v1/completions"] and not sleep.task.done()
        found = await status_of(gate)
        assert (found["running"], found["waiting"], found["asleep"], found["closed"]) == (1, 1, False, True)
        engine.end.set()
        assert await first.answer() == 200 and await sleep.answer() == 200
        assert gate.asleep is True and engine.calls[1:] == ["/sleep"]
        assert await operator(gate, "/wake_up").answer() == 200
        # Nothing of what was read in the queue is lost.
        assert await second.answer() == 200 and engine.bodies == [b"1", b"23"]
        assert (await status_of(gate))["waiting"] == 0

    run(monkeypatch, tmp_path, scenario)


def test_a_request_whose_body_still_comes_neither_waits_nor_runs(monkeypatch, tmp_path):
    """Else one client that sends a byte now and then would keep the chips, or wake an instance for nothing."""

    async def scenario(gate, engine):
        engine.end.set()
        slow = Client(gate, "/v1/completions").give(b"1", more=True)
        await asyncio.sleep(0.05)
        assert (gate.running, len(gate.waiting), engine.calls) == (0, 0, [])
        assert await operator(gate, "/sleep", "within=0.1").answer() == 200
        slow.give(b"2", more=True)
        await asyncio.sleep(0.05)
        assert not gate.waiting
        # Its end has the instance woken.
        slow.give(b"3")
        await until(lambda: gate.waiting)
        assert await operator(gate, "/wake_up").answer() == 200
        assert await slow.answer() == 200 and engine.bodies == [b"123"]

    run(monkeypatch, tmp_path, scenario)


def test_who_leaves_before_the_end_of_a_body_asks_for_nothing(monkeypatch, tmp_path):
    async def scenario(gate, engine):
        client = Client(gate, "/v1/completions").give(b"1", more=True)
        client.go()
        assert await client.answer() is None and not engine.calls and not gate.running

    run(monkeypatch, tmp_path, scenario)


def test_between_two_calls_for_a_sleep_the_gate_stays_closed_but_not_for_long(monkeypatch, tmp_path):
    monkeypatch.setattr(residents_host, "LEASE", 0.4)

    async def scenario(gate, engine):
        Client(gate, "/v1/completions").give(b"1")
        await until(lambda: engine.bodies)
        assert await operator(gate, "/sleep", "within=0.05").answer() == 409
        waits = Client(gate, "/v1/completions").give(b"2")
        await asyncio.sleep(0.2)
        assert gate.closed and engine.bodies == [b"1"]
        # The program calls again in time, and then never.
        assert await operator(gate, "/sleep", "within=0.05").answer() == 409
        await asyncio.sleep(0.3)
        assert gate.closed
        await until(lambda: engine.bodies == [b"1", b"2"])
        assert not gate.closed
        engine.end.set()
        assert await waits.answer() == 200 and "/sleep" not in engine.calls

    run(monkeypatch, tmp_path, scenario)


def test_a_program_that_goes_while_it_waits_opens_the_gate(monkeypatch, tmp_path):
    async def scenario(gate, engine):
        Client(gate, "/v1/completions").give(b"1")
        await until(lambda: engine.bodies)
        sleep = operator(gate, "/sleep")
        await until(lambda: gate.closed)
        sleep.go()
        assert await sleep.answer() is None and not gate.closed and "/sleep" not in engine.calls

    run(monkeypatch, tmp_path, scenario)


def test_after_a_call_that_failed_nothing_is_let_in(monkeypatch, tmp_path):
    async def scenario(gate, engine):
        engine.status = 500
        assert await operator(gate, "/sleep").answer() == 500
        found = await status_of(gate)
        assert found["asleep"] is None and found["closed"]
        assert await operator(gate, "/wake_up").answer() == 500 and gate.closed
        engine.status = 200
        # vLLM is asked, because it may sleep.
        assert await operator(gate, "/wake_up").answer() == 200
        assert engine.calls == ["/sleep", "/wake_up", "/wake_up"] and not gate.closed and gate.asleep is False

    run(monkeypatch, tmp_path, scenario)


def test_a_question_for_news_is_answered_when_there_are_some(monkeypatch, tmp_path):
    async def scenario(gate, engine):
        first = await status_of(gate)
        news = asyncio.ensure_future(status_of(gate, f"after={first['version']}&within=10"))
        await asyncio.sleep(0.1)
        assert not news.done()
        Client(gate, "/v1/completions").give()
        assert (await news)["running"] == 1
        # And without any at the end of the time.
        version = (await status_of(gate))["version"]
        assert (await status_of(gate, f"after={version}&within=0.1"))["version"] == version

    run(monkeypatch, tmp_path, scenario)


@pytest.mark.parametrize("path", residents_host.OWN)
def test_without_the_token_nothing_is_done(monkeypatch, tmp_path, path):
    async def scenario(gate, engine):
        for token in (None, "b" * 32):
            assert await Client(gate, path, "POST", "", token).give().answer() == 404
        assert not engine.calls and not gate.closed

    run(monkeypatch, tmp_path, scenario)


def test_who_waits_and_who_does_not(monkeypatch, tmp_path):
    async def scenario(gate, engine):
        engine.end.set()
        assert await operator(gate, "/sleep").answer() == 200
        for method, path in (("GET", "/v1/models"), ("GET", "/health"), ("POST", "/tokenize"), ("GET", "/is_sleeping")):
            assert await Client(gate, path, method).answer() == 200
        waiting = [Client(gate, path).give() for path in ("/v1/embeddings", "/v1/load_lora_adapter", "/new")]
        await until(lambda: len(gate.waiting) == 3)
        socket = Client(gate, "/v1/realtime", kind="websocket")
        await until(lambda: len(gate.waiting) == 4)
        (tmp_path / "closed").touch()
        assert [await one.answer() for one in waiting] == [503] * 3
        await asyncio.wait_for(socket.task, 5)
        assert socket.sent == [{"type": "websocket.close", "code": 1013}]
        assert not gate.waiting

    run(monkeypatch, tmp_path, scenario)


def test_a_wait_ends_with_503(monkeypatch, tmp_path):
    monkeypatch.setattr(residents_host, "WAIT", 0.2)

    async def scenario(gate, _engine):
        assert await operator(gate, "/sleep").answer() == 200
        client = Client(gate, "/v1/completions").give()
        assert await client.answer() == 503 and (b"retry-after", b"5") in client.sent[0]["headers"]

    run(monkeypatch, tmp_path, scenario)


def test_waiting_bodies_have_a_bound_in_bytes_and_one_always_waits(monkeypatch, tmp_path):
    monkeypatch.setattr(residents_host, "MOST_BYTES", 10)

    async def scenario(gate, engine):
        engine.end.set()
        assert await operator(gate, "/sleep").answer() == 200
        large = Client(gate, "/v1/completions").give(b"x" * 11)
        await until(lambda: len(gate.waiting) == 1)
        assert await Client(gate, "/v1/completions").give(b"1").answer() == 503
        large.go()
        await large.answer()
        waiting = [Client(gate, "/v1/completions").give(b"x" * 5) for _n in range(2)]
        await until(lambda: len(gate.waiting) == 2)
        assert await Client(gate, "/v1/completions").give(b"1").answer() == 503
        assert await operator(gate, "/wake_up").answer() == 200
        assert [await each.answer() for each in waiting] == [200] * 2

    run(monkeypatch, tmp_path, scenario)


def test_too_many_waiting_requests_are_refused_and_the_others_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(residents_host, "MOST", 3)

    async def scenario(gate, engine):
        engine.end.set()
        assert await operator(gate, "/sleep").answer() == 200
        waiting = [Client(gate, "/v1/completions").give(b"%d" % n) for n in range(3)]
        await until(lambda: len(gate.waiting) == 3)
        client = Client(gate, "/v1/completions").give(b"4")
        assert await client.answer() == 503 and (b"retry-after", b"5") in client.sent[0]["headers"]
        waiting[0].go()
        await waiting[0].answer()
        waiting.append(Client(gate, "/v1/completions").give(b"5"))
        assert await operator(gate, "/wake_up").answer() == 200
        assert [await each.answer() for each in waiting[1:]] == [200] * 3

    run(monkeypatch, tmp_path, scenario)


def cost_of_a_look(monkeypatch, tmp_path, number):
    """Return the CPU time that one waiting request takes each time it looks whether to wait on, with others."""
    looks, spent = [0], []
    monkeypatch.setattr(residents_host, "INTERVAL", 0.3)

    def exists(_path):
        looks[0] += 1
        return False

    async def scenario(gate, _engine):
        assert await operator(gate, "/sleep").answer() == 200
        waiting = [Client(gate, "/v1/completions").give() for _n in range(number)]
        await until(lambda: looks[0] >= number)
        began, looks[0] = time.process_time(), 0
        await until(lambda: looks[0] >= 2 * number)
        spent.append((time.process_time() - began) / looks[0])
        for each in waiting:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in waiting), return_exceptions=True)

    with monkeypatch.context() as only:
        only.setattr(residents_host.os.path, "exists", exists)
        run(monkeypatch, tmp_path, scenario)
    return spent[0]


def test_waiting_requests_cost_what_their_number_does(monkeypatch, tmp_path):
    # Each looked through all others: 40 % of a processor for 5,000.
    few, many = (cost_of_a_look(monkeypatch, tmp_path, number) for number in (300, 4800))
    assert many < 2 * few
