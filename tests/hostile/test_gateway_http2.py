# SPDX-License-Identifier: GPL-3.0-or-later
"""A refusal arrives: an answer before the end of a body resets stream or connection, and clients lose the answer."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time

import pytest

from tests.fakes.gateways import HAPROXY, KEY, client, early_in_a_minute, gateway, plan, until
from tests.hostile.http2 import Http2
from tests.integration.gateway_engines import engine

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT = "/v1/chat/completions"
SLOW, POOR, OLD, ELSEWHERE = ("".join((name, "-")) * 8 for name in ("slow", "poor", "old", "elsewhere"))
# name: (path, key, status)
REFUSED = {
    "no key": (CHAT, "", 401),
    "wrong key": (CHAT, "wrong", 401),
    "expired key": (CHAT, OLD, 401),
    "unknown path": ("/pause", KEY, 404),
    "long path": (f"/{'x' * 20_000}", KEY, 431),
    "rate": (CHAT, SLOW, 429),
    "budget": (CHAT, POOR, 429),
    "service of others": (CHAT, ELSEWHERE, 403),
    "no server": ("/v1/embeddings", KEY, 503),
}


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    clients = [
        client(), client("slow", SLOW, rate=1), client("poor", POOR), client("old", OLD, ends=1_000_000_000),
        client("elsewhere", ELSEWHERE, services=("vec",)),
    ]  # fmt: skip
    with engine() as server:
        server.healthy = True
        plans = {"chat-1": plan(server.server_port)}
        more = {"variables": {"gateway_tokens": True}, "options": {"tokens": True}}
        directory = tmp_path_factory.mktemp("refusing")
        with gateway(directory, [], clients, plans=plans, **more) as found:
            found.tell(f"add map {found.paths['maps']}/over.map poor {int(time.time()) + 600}|client|poor|1|day")
            found.ask("POST", CHAT, SLOW)
            yield found


def refused(found, name):
    """Return path, key and status of a refusal; the one of a server that is down happens at every path."""
    path, key, status = REFUSED[name]
    if name == "no server":
        found.tell("set server chat/gw--chat-1 state maint")
        return CHAT, key, status
    found.tell("set server chat/gw--chat-1 state ready")
    if name == "rate":
        early_in_a_minute(15)
        found.ask("POST", CHAT, SLOW)
    return path, key, status


# HAProxy itself answers 431, before any rule of ours could wait for the body: how it ends is a race for a large one.
SIZES = [
    (name, n) for name in REFUSED for n in (1, 1000, 60_000, 200_000, 3_000_000) if name != "long path" or n <= 1000
]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_a_refusal_over_http2_resets_no_stream(refusing, name, size):
    path, key, status = refused(refusing, name)
    with Http2(refusing.port) as connection:
        stream = connection.request("POST", path, [("authorization", f"Bearer {key}")], b"x" * size, pause=0.1)
        assert connection.status(stream) == status and connection.finished(stream)
        connection.read(lambda: connection.resets, 0.2)
        assert connection.resets == {} and b'"error"' in connection.bodies[stream]
        # The connection is as good as before.
        refusing.tell("set server chat/gw--chat-1 state ready")
        stream = connection.request("GET", "/v1/models", [("authorization", f"Bearer {KEY}")])
        assert connection.status(stream) == 200


def curl(found, path, key, body, *words):
    """Send a file, and return curl's exit status and the head of the answer, in small letters."""
    command = ["curl", "-s", "-D-", "-o/dev/null", "-XPOST", "-H", f"Authorization: Bearer {key}", *words]
    with body.open("rb") as file:
        done = subprocess.run([*command, f"{found.url}{path}"], check=False, capture_output=True, stdin=file)
    return done.returncode, done.stdout.lower()


VERSIONS = (["--http2-prior-knowledge"], ["--http1.1"], ["--http1.1", "-HExpect:"])


@pytest.mark.parametrize("size", [50_000, 3_000_000])
@pytest.mark.parametrize("name", ["wrong key", "unknown path", "rate", "no server"])
def test_curl_gets_each_refusal_with_its_headers(refusing, tmp_path, name, size):
    path, key, status = refused(refusing, name)
    body = tmp_path / "body"
    body.write_bytes(b"x" * size)
    for version in VERSIONS * 4:
        rc, head = curl(refusing, path, key, body, *version, "--data-binary", f"@{body}")
        assert rc == 0 and re.search(rb"(?m)^http/\S+ %d" % status, head), (version, rc, head)
        assert (b"retry-after: " in head) == (status in (429, 503))


@pytest.mark.parametrize("admission", ["off", "auto"])
def test_a_body_that_is_too_large_is_refused_alike_over_each_version(tmp_path, admission):
    """413, or 411 without an announced length; also to a client that sends the whole body before it reads."""
    body = tmp_path / "body"
    body.write_bytes(b"x" * 3_000_000)
    with engine() as server:
        server.healthy = True
        more = {"options": {"admission": admission}, "variables": {"gateway_max_body": 1}}
        with gateway(tmp_path, [server.server_port], **more) as found:
            for version in VERSIONS * 3:
                rc, head = curl(found, CHAT, KEY, body, *version, "--data-binary", f"@{body}")
                assert rc == 0 and re.search(rb"(?m)^http/\S+ 413", head), (version, rc, head)
                rc, head = curl(found, CHAT, KEY, body, *version, "-T-")
                assert rc == 0 and re.search(rb"(?m)^http/\S+ 411", head), (version, rc, head)
                status, _headers, text = found.ask("POST", CHAT, KEY, b"x" * 3_000_000)
                assert status == 413 and b"more than 1 MiB" in text
            assert [each for each in server.asked if each[0] == "POST"] == []


def test_bodies_that_drip_are_kept_of_few_strangers(refusing):
    """Who has no key keeps eight refused requests, however long their bodies take; any other is broken off."""
    few, head = refusing.constants["__gateway_late_refusals"], [("content-length", "9000000")]
    refused(refusing, "no key")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Http2(refusing.port)) for _n in range(few + 4)]
        for each in clients:
            stream = each.request("POST", CHAT, head, b"x" * 300_000, ends=False)
            assert each.status(stream) == 401
        until(lambda: [each.read(lambda each=each: each.resets, 0.2) for each in clients].count({}) == few)
        assert all(each.resets == {} for each in clients[:few])
        assert refusing.ask("GET", "/v1/models", KEY)[0] == 200


def test_a_stranger_who_sends_no_body_holds_nothing(refusing):
    with Http2(refusing.port) as connection:
        stream = connection.request("POST", CHAT, [("content-length", "9")], b"x", ends=False)
        # Awaited for a moment, then refused all the same; silence ends a connection after 30 s only.
        assert connection.status(stream, 25) in (401, 408)
