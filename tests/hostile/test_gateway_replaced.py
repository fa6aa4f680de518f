# SPDX-License-Identifier: GPL-3.0-or-later
"""A client keeps connections to a worker that a reload has replaced, to go on with a key that has ended."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, early_in_a_minute, gateway, plan, until
from tests.fakes.wheelhouse import run_module
from tests.hostile.http2 import REFUSED_STREAM, Http2
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
OTHER = "other-" * 6
STREAM, PLAIN = b'{"model":"chat","stream":true}', b'{"model":"chat"}'
AUTH = [("authorization", f"Bearer {KEY}")]


class Http1:
    """A connection of HTTP/1.1 that sends what it likes."""

    def __init__(self, port):
        self.socket, self.text = socket.create_connection(("127.0.0.1", port), timeout=HANGS), b""

    def send(self, body, begin=0, end=None):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.socket.sendall((head.encode() + body)[begin:end])

    def read(self, until_text):
        while until_text not in self.text and (part := self.socket.recv(65536)):
            self.text += part

    def statuses(self):
        """Return the statuses of all answers until the gateway closes the connection."""
        with contextlib.suppress(ConnectionError):
            while part := self.socket.recv(65536):
                self.text += part
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", self.text)]


class Held:
    """The connections that a client holds while the gateway reloads."""

    def __init__(self, port, server):
        self.server = server
        self.running, self.idle, self.unused = Http2(port), Http2(port), Http2(port)
        self.stream = self.running.request("POST", CHAT, AUTH, STREAM)
        assert self.running.status(self.stream) == 200
        assert self.idle.status(self.idle.request("POST", CHAT, AUTH, PLAIN)) == 200
        self.unused.read(lambda: False, 0.1)
        self.busy, self.pipelined, self.half, self.fresh = (Http1(port) for _n in range(4))
        for each in (self.busy, self.pipelined, self.half):
            each.send(STREAM)
            each.read(b"data:")
        self.half.send(PLAIN, 0, 40)

    def ask_again(self):
        """Send a request over each connection; return the statuses of the last answers by connection."""
        found = {}
        self.pipelined.send(PLAIN)
        self.half.send(PLAIN, 40)
        self.fresh.send(PLAIN)
        for name in ("running", "idle", "unused"):
            connection = getattr(self, name)
            with contextlib.suppress(OSError):
                stream = connection.request("POST", CHAT, AUTH, PLAIN)
                status = connection.status(stream)
                # HAProxy may close the connection, or refuse the stream: then clients repeat the request elsewhere.
                if status or (connection.open and connection.resets.get(stream) != REFUSED_STREAM):
                    found[name] = status
        # Now the answers end that were running all the time.
        self.server.freed.set()
        assert self.running.finished(self.stream) and self.running.statuses[self.stream] == 200
        self.busy.read(b"\r\n0\r\n")
        self.busy.send(PLAIN)
        for name in ("busy", "pipelined", "half", "fresh"):
            found[name] = getattr(self, name).statuses()[-1]
        return found


def keys(found, *clients):
    run = run_module(
        "gateway_keys", clients=[each.as_dict() for each in clients], directory=found.paths["maps"],
        socket=found.paths["socket"], group="root",
    )  # fmt: skip
    assert run.get("changed"), run


@contextlib.contextmanager
def held(directory, clients=None, **more):
    with engine() as server:
        server.tokens, server.pause = 100_000, 0.05
        plans = {"chat-1": plan(server.server_port, models=["chat"])}
        plans.update({"other": plan(server.server_port, of="other", models=["other"])} if more.pop("shared", 0) else {})
        with gateway(directory, [], clients or [client()], plans=plans, **more) as found:
            found.engine, found.held = server, Held(found.port, server)
            yield found


def revoke(found):
    keys(found, client("bob", OTHER))


def use_up(found):
    """Do what the service does that counts tokens."""
    found.tell(f"add map {found.paths['maps']}/over.map alice {int(time.time()) + 60}|client|alice|1|day")


def test_a_key_that_was_revoked_before_a_reload_gets_nothing_over_older_connections(tmp_path):
    with held(tmp_path) as found:
        revoke(found)
        found.reload()
        assert set(found.held.ask_again().values()) == {401}


@pytest.mark.parametrize(
    ("change", "shared", "status"),
    [
        (revoke, False, 401),
        (lambda found: keys(found, client(ends=int(time.time()) - 5)), False, 401),
        (lambda found: keys(found, client(services=("other",))), False, 403),
        (lambda found: keys(found, client(services=("other",))), True, 404),
        (use_up, False, 429),
    ],
    ids=["revoked", "expired", "right", "right to a model", "budget"],
)  # fmt: skip
def test_a_change_after_a_reload_holds_for_older_connections_too(tmp_path, change, shared, status):
    more = {"variables": {"gateway_tokens": True}, "options": {"tokens": True}}
    with held(tmp_path, shared=shared, **more) as found:
        found.reload()
        change(found)
        assert set(found.held.ask_again().values()) == {status}
        assert found.ask("POST", CHAT, KEY, PLAIN)[0] == status


def test_a_used_budget_stays_used_over_a_reload(tmp_path):
    with held(tmp_path, variables={"gateway_tokens": True}, options={"tokens": True}) as found:
        use_up(found)
        found.reload()
        assert set(found.held.ask_again().values()) == {429}
        # A restart too, and what it begins with ends by itself.
        ends = int(time.time()) + 5
        found.tell(f"set map {found.paths['maps']}/over.map alice {ends}|client|alice|1|minute")
        found.save()
        found.stop()
        found.start()
        assert found.ask("POST", CHAT, KEY, PLAIN)[0] == 429 or time.time() >= ends
        until(lambda: found.ask("POST", CHAT, KEY, PLAIN)[0] == 200)
        assert time.time() >= ends


def test_the_limits_of_a_client_count_what_passes_on(tmp_path):
    with held(tmp_path, [client(rate=30)]) as found:
        found.reload()
        keys(found, client(rate=3))
        early_in_a_minute(20)
        assert list(found.held.ask_again().values()).count(429) >= 1
        assert found.ask("POST", CHAT, KEY, PLAIN)[0] == 429


@pytest.mark.parametrize("reloads", [1, 2])
def test_a_reload_costs_a_client_with_a_key_no_request(tmp_path, reloads):
    with held(tmp_path) as found:
        for _n in range(reloads):
            found.reload()
        assert set(found.held.ask_again().values()) == {200}
        # Each was logged once: by the worker that decided.
        until(lambda: found.log.read_text().count(f'path="{CHAT}"') >= 4 + 1 + 5)
        lines = [line for line in found.log.read_text().splitlines() if "client=" in line]
        assert len(lines) <= 12 and all('client="alice" service=chat' in line for line in lines)
        assert all("from=127.0.0.1" in line for line in lines)
        warnings = [line for line in found.log.read_text().splitlines() if "config :" in line]
        assert all("state file" in line for line in warnings), warnings


def test_errors_of_the_new_worker_arrive_as_they_are(tmp_path):
    with held(tmp_path) as found:
        found.reload()
        connection = found.held.idle
        stream = connection.request("POST", "/v1/messages", [("x-api-key", "wrong")], PLAIN)
        assert connection.status(stream) == 401 and connection.finished(stream)
        assert json.loads(connection.bodies[stream])["error"]["type"] == "authentication_error"


def test_a_key_that_is_revoked_during_a_reload_is_gone_afterwards(tmp_path):
    with engine() as server, gateway(tmp_path, [server.server_port]) as found:
        kept = client("bob", OTHER)
        for number in range(8):
            keys(found, client(), kept)
            reload = threading.Thread(target=found.reload)
            reload.start()
            # The new worker reads the maps some 0.5 s after the reload begins.
            time.sleep(0.3 + 0.04 * number)
            keys(found, kept)
            reload.join()
            assert found.ask("POST", CHAT, KEY, PLAIN)[0] == 401, number
            assert found.ask("POST", CHAT, OTHER, PLAIN)[0] == 200
