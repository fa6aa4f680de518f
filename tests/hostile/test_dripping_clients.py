# SPDX-License-Identifier: GPL-3.0-or-later
"""A client sends its body a byte now and then, so that its request lasts: a drain waits for it, and shared chips."""

from __future__ import annotations

import contextlib
import json
import os
import socket

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import arrival_host

from tests.fakes.counted_engine import counted_engine
from tests.fakes.gateways import HAPROXY, KEY, gateway, plan, repeating, until
from tests.fakes.stopping_engine import answer
from tests.hostile.http2 import DATA, Http2, frame

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT, SERVER = "/v1/chat/completions", "gw--chat"
LENGTH = 60 * 1024 * 1024


@pytest.fixture(scope="module", params=["off", "auto"])
def one(tmp_path_factory, request):
    """A gateway in front of an engine that waits two seconds for a body."""
    directory = tmp_path_factory.mktemp("d")
    more = {"options": {"admission": request.param}, "variables": {"gateway_admission": request.param}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrival_host, "FIRST", 2.0)
        with counted_engine(directory / "run") as engine:
            plans = {"chat": plan(engine.port, args={"max-num-seqs": 8})}
            with gateway(directory, [engine.port], plans=plans, **more) as found:
                until(lambda: found.state(SERVER) == "UP")
                found.engine = engine
                yield found


@contextlib.contextmanager
def slow(one, path=CHAT):
    """A request over HTTP/1.1 whose body drips; as much of it is here as a buffer of HAProxy holds."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {LENGTH}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", one.port), 60) as connection:
        connection.sendall(head.encode() + b" " * 200_000)
        with repeating(lambda: connection.send(b" "), 0.2):
            yield connection


def running(one):
    return int(one.stat(SERVER, "scur"))


def test_a_drain_ends_and_the_client_gets_408(one):
    with slow(one) as connection:
        until(lambda: running(one) == 1, 10)
        one.tell(f"set server chat/{SERVER} state drain")
        try:
            until(lambda: running(one) == 0, 30)
        finally:
            one.tell(f"set server chat/{SERVER} state ready")
        head, _empty, body = connection.recv(65536).partition(b"\r\n\r\n")
        assert b" 408 " in head.splitlines()[0]
        assert json.loads(body)["error"]["code"] == "request_timeout"
    until(lambda: one.state(SERVER) == "UP")
    assert one.ask("POST", CHAT, KEY, b'{"model":"m","messages":"word","max_tokens":1}')[0] == 200


def test_over_http_2_too(one):
    with Http2(one.port) as connection:
        headers = [("authorization", f"Bearer {KEY}"), ("content-length", str(LENGTH))]
        stream = connection.request("POST", CHAT, headers, b" " * 65_000, ends=False)
        with repeating(lambda: connection.socket.sendall(frame(DATA, 0, stream, b" ")), 0.2):
            until(lambda: running(one) == 1, 10)
            assert connection.status(stream, 20) == 408
            # HAProxy ends the request with the next byte that comes after the answer, or after 30 seconds of silence.
            until(lambda: running(one) == 0, 20)


def test_what_an_engine_refuses_at_its_head_is_over_too(one, monkeypatch):
    """As vLLM answers 404 without reading the body, where it does not serve a path."""

    reads = one.engine.role.app

    async def refuses(scope, receive, send):
        await (answer(send, b"{}", 404) if scope["method"] == "POST" else reads(scope, receive, send))

    monkeypatch.setattr(one.engine.role, "app", refuses)
    before = int(one.stat(SERVER, "stot"))
    with slow(one):
        until(lambda: int(one.stat(SERVER, "stot")) > before and running(one) == 0, 20)


def test_a_body_that_was_to_come_after_a_key_was_revoked_has_no_more_time_than_that(one):
    with slow(one) as connection:
        until(lambda: running(one) == 1, 10)
        name = one.clients[0].sha256[0]
        one.tell(f"del map {one.paths['maps']}/clients.map {name}")
        try:
            assert one.ask("POST", CHAT, KEY, b"{}")[0] == 401
            assert b" 408 " in connection.recv(65536).splitlines()[0]
        finally:
            one.tell(f"add map {one.paths['maps']}/clients.map {name} alice")
