# SPDX-License-Identifier: GPL-3.0-or-later
"""What a gateway does with the routers of decode hosts: a real HAProxy before stub routers and stub engines."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.fakes.gateways import HAPROXY, KEY, client, free_port, gateway, plan, until

pytestmark = pytest.mark.skipif(HAPROXY is None, reason="needs HAProxy")
CHAT, LIST = "/v1/chat/completions", "/v1/models"


class Stub:
    """A server that answers requests with ``status`` and text, and checks with ``healthy``; keeps what it is asked."""

    def __init__(self, name, kind="application/json"):
        self.name, self.kind = name, kind
        self.status, self.healthy, self.asked = 200, 200, []
        self.notices = True
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_words):
                pass

            def do_GET(self):
                check = self.path in ("/health", "/readiness")
                self.reply(stub.healthy if check else stub.status)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stub.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
                self.reply(stub.status)
                # A router finds out itself, some seconds later.
                stub.healthy = stub.status if stub.status >= 500 and stub.notices else stub.healthy

            def reply(self, status):
                text = json.dumps({"by": stub.name}).encode()
                self.send_response(status)
                self.send_header("Content-Type", stub.kind if status != 200 else "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        self.port = free_port()
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def routed(tmp_path, hosts=1, **more):
    """Yield a gateway, and the router and the engine of each decode host."""
    pairs = [(Stub(f"router{n}", "text/plain; charset=utf-8"), Stub(f"engine{n}")) for n in range(hosts)]
    plans = {
        f"chat-{n}": plan(engine.port, group={"role": "decode", "router": {"port": router.port}})
        for n, (router, engine) in enumerate(pairs)
    }
    try:
        with gateway(tmp_path, [], [client()], plans=plans, **more) as found:
            until(lambda: all(state(found, f"router:gw--chat-{n}") == "UP" for n in range(hosts)))
            yield found, pairs
    finally:
        for each in (each for pair in pairs for each in pair):
            each.end()


def state(found, server):
    rows = [line.split(",") for line in found.tell("show stat").splitlines() if line]
    states = {row[1]: row[rows[0].index("status")] for row in rows[1:] if row[0] == "gateway:router:chat"}
    return states[server].split()[0]


def answer(found, path=CHAT, method="POST", **headers):
    status, told, body = found.ask(method, path, KEY, **headers)
    return status, json.loads(body), {name.lower(): value for name, value in told.items()}.get("retry-after")


def test_the_router_gets_what_a_prefill_host_can_compute_and_vllm_the_rest(tmp_path):
    with routed(tmp_path) as (found, [(router, engine)]):
        assert answer(found) == (200, {"by": "router0"}, None)
        # The router changes requests whose path it knows.
        assert [each[0] for each in router.asked] == [f"/routed{CHAT}"]
        assert answer(found, "/v1/responses") == (200, {"by": "engine0"}, None)
        assert [each[0] for each in engine.asked] == ["/v1/responses"]
        found.reload()
        assert [answer(found)[1] for _each in range(5)] == [{"by": "router0"}] * 5


def test_tokens_are_counted_for_the_client_behind_the_router_too(tmp_path):
    with routed(tmp_path, options={"tokens": True}) as (found, [(router, engine)]):
        answer(found, Baggage="gateway-usage=forged")
        value = router.asked[0][1]["baggage"]
        name, _equals, text = value.partition("=")
        told = base64.b64decode(text).decode()
        assert name == "gateway-usage" and told.startswith("gw alice - ")
        router.status = 500
        assert answer(found)[:2] == (200, {"by": "engine0"})
        assert engine.asked[0][1]["x-gateway-usage"].startswith("gw alice - ")


def test_without_a_prefill_host_vllm_itself_answers(tmp_path):
    with routed(tmp_path) as (found, [(router, engine)]):
        router.healthy, router.status = 503, 503
        until(lambda: state(found, "router:gw--chat-0") == "DOWN")
        assert [answer(found)[:2] for _each in range(3)] == [(200, {"by": "engine0"})] * 3
        assert engine.asked[0][0] == CHAT and router.asked == []
        router.healthy, router.status = 200, 200
        until(lambda: state(found, "router:gw--chat-0") == "UP")
        assert answer(found)[1] == {"by": "router0"}


@pytest.mark.parametrize("status", [500, 503])
def test_a_request_that_a_router_could_not_have_answered_is_repeated_at_vllm(tmp_path, status):
    with routed(tmp_path) as (found, [(router, engine)]):
        router.status = status
        assert [answer(found)[:2] for _each in range(20)] == [(200, {"by": "engine0"})] * 20
        # Until the router has found out itself.
        assert len(router.asked) <= 20 and len(engine.asked) == 20
        until(lambda: state(found, "router:gw--chat-0") == "DOWN")
        router.asked.clear()
        assert answer(found)[1] == {"by": "engine0"} and router.asked == []


def test_no_request_of_a_client_puts_a_router_out_of_service_for_others(tmp_path):
    """vllm-router 0.1.17 answers 500 to a chat with ``stream: 1``, which vLLM streams."""
    with routed(tmp_path, 2) as (found, [(first, own), (second, other)]):
        first.notices = second.notices = False
        for _each in range(4):
            first.status = second.status = 500
            assert answer(found)[0] == 200
            first.status = second.status = 200
            assert {answer(found)[1]["by"] for _turn in range(4)} == {"router0", "router1"}
        assert len(own.asked) + len(other.asked) == 4
        assert {state(found, f"router:gw--chat-{n}") for n in (0, 1)} == {"UP"}


def test_what_neither_answers_is_refused_without_the_words_of_the_router(tmp_path):
    with routed(tmp_path) as (found, [(router, engine)]):
        router.status, engine.status, engine.kind = 500, 500, "text/plain"
        status, told, after = answer(found)
        # In the form of the API, with the time for the next try.
        assert (status, after) == (503, "5") and "error" in told
        assert len(router.asked) == len(engine.asked) == 1


def test_with_two_decode_hosts_the_other_router_takes_over(tmp_path):
    with routed(tmp_path, 2) as (found, [(first, _own), (_second, _other)]):
        first.healthy, first.status = 503, 503
        until(lambda: state(found, "router:gw--chat-0") == "DOWN")
        assert {answer(found)[1]["by"] for _each in range(6)} == {"router1"}


def test_an_error_of_vllm_is_passed_on_as_it_is(tmp_path):
    with routed(tmp_path) as (found, [(router, _engine)]):
        router.status, router.kind = 400, "application/json"
        assert answer(found) == (400, {"by": "router0"}, None)
        assert state(found, "router:gw--chat-0") == "UP" and len(router.asked) == 1


def test_a_service_without_vllm_answers_503_with_the_time_for_the_next_try(tmp_path):
    with routed(tmp_path) as (found, [(router, engine)]):
        engine.healthy = router.healthy = 503
        until(lambda: found.state("gw--chat-0").startswith("DOWN"))
        status, _body, after = answer(found)
        assert (status, after) == (503, "5") and router.asked == []


def test_a_drained_instance_gets_nothing_through_its_router_either(tmp_path):
    with routed(tmp_path) as (found, [(router, engine)]):
        found.tell("set server chat/gw--chat-0 state drain")
        assert answer(found)[0] == 503
        assert router.asked == engine.asked == []
        found.tell("set server chat/gw--chat-0 state ready")
        assert answer(found)[1] == {"by": "router0"}


@pytest.mark.parametrize("affinity", ["prefix", "client"])
def test_the_affinity_of_a_service_holds_for_its_routers(tmp_path, affinity):
    with routed(tmp_path, 2, options={"services": {"chat": {"affinity": affinity}}}) as (found, pairs):
        assert len({answer(found)[1]["by"] for _each in range(6)}) == 1
        assert sum(len(router.asked) for router, _engine in pairs) == 6


def test_nobody_else_gets_past_the_keys(tmp_path):
    with routed(tmp_path) as (found, _pairs):
        paths = list(Path(found.paths["chroot"], "routed").iterdir())
        assert {(path.owner(), path.stat().st_mode & 0o777) for path in paths} == {("haproxy", 0o600)}
