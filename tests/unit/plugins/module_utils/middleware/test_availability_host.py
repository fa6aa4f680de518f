# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance passes on that it is sick: the role's middleware in front of the HTTP server of vLLM."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance import marks as words
from ansible_collections.baremetal.inference.plugins.module_utils.middleware import availability_host
from ansible_collections.baremetal.inference.plugins.module_utils.middleware.steering import PRIORITY

from tests.fakes.stopping_engine import stopping_engine


def answer(engine, path):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    connection.request("GET", path)
    found = connection.getresponse()
    return found.status, found.getheader("unhealthy"), found.read()


def test_a_sick_instance_says_so_in_its_metrics_and_serves_on(tmp_path):
    with stopping_engine(tmp_path) as engine:
        assert answer(engine, "/metrics")[1] is None
        (tmp_path / "unhealthy").write_text("isolate_host xid 79 of 0000:5d:00.0: off the bus\n")
        status, reason, text = answer(engine, "/metrics")
        assert (status, reason) == (200, "isolate_host xid 79 of 0000:5d:00.0: off the bus")
        assert b"vllm:num_requests_running" in text
        # Whether it can be spared is for the gateway to decide.
        assert answer(engine, "/health")[:2] == (200, None)
        assert answer(engine, "/v1/models")[:2] == (200, None)
        (tmp_path / "unhealthy").unlink()
        assert answer(engine, "/metrics")[1] is None


@pytest.mark.parametrize("text", [b"a\r\nset-cookie: x", b"caf\xc3\xa9", b"x" * 1000])
def test_whatever_is_in_the_file_is_one_header(tmp_path, text):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "unhealthy").write_bytes(text)
        _status, reason, _text = answer(engine, "/metrics")
        assert len(reason) <= 200 and reason.isascii() and reason.isprintable()


def unanswered(engine):
    """Return what /metrics says of unanswered requests."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=60)
    connection.request("GET", "/metrics")
    with connection.getresponse() as found:
        return found.getheader("unanswered")


def comes_to(engine, wanted):
    """Return whether /metrics comes to say that so many requests are unanswered."""
    for _attempt in range(600):
        if unanswered(engine) == wanted:
            return True
        time.sleep(0.05)
    return False


def send(engine, text):
    """Send the beginning of a request; return the open connection."""
    connection = socket.create_connection(("127.0.0.1", engine.port), 60)
    connection.sendall(text)
    return connection


WHOLE = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


def test_requests_without_an_answer_are_told_where_a_watchdog_asks(tmp_path):
    with stopping_engine(tmp_path) as engine:
        assert unanswered(engine) is None
        (tmp_path / "watched").touch()
        assert unanswered(engine) == "0"
        engine.stopped = True
        with send(engine, WHOLE % b"/v1/chat/completions"), send(engine, WHOLE % b"/v1/responses"):
            # The engine hangs, and its own figure stays where it was.
            assert comes_to(engine, "2")
            assert engine.running == 0


@pytest.mark.parametrize(
    "text",
    [
        WHOLE[:-1] % b"/v1/chat/completions",  # the client sends slowly
        WHOLE % b"/v1/load_lora_adapter",
        b"GET /v1/models/x HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=["half of its body is here", "nothing is generated", "it asks for nothing"],
)
def test_what_waits_for_no_token_is_not_unanswered(tmp_path, text):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "watched").touch()
        engine.stopped = True
        with send(engine, text), send(engine, WHOLE % b"/v1/chat/completions"):
            assert comes_to(engine, "1")
            # One event loop takes both in turn: when the later one is counted, so would the earlier one be.
            assert unanswered(engine) == "1"


def test_a_request_that_ends_without_an_answer_is_forgotten(tmp_path, monkeypatch):
    """A client that leaves gets no answer, and would count for ever."""
    monkeypatch.setenv("AVAILABILITY_DIRECTORY", str(tmp_path))
    (tmp_path / "watched").touch()
    counted = []

    async def left(_scope, receive, _send):
        await receive()
        counted.append(len(found.unanswered))

    async def receive():
        return {"type": "http.request", "body": b"{}"}

    found = availability_host.Availability(left)
    scope = {"type": "http", "path": "/v1/responses", "method": "POST", "headers": [], "query_string": b""}
    asyncio.run(found(scope, receive, receive))
    assert (counted, found.unanswered, found.open) == ([1], set(), 0)


def test_an_answer_that_has_begun_is_not_unanswered(tmp_path):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "watched").touch()
        engine.pause = 2
        with send(engine, WHOLE % b"/v1/chat/completions") as connection:
            assert b"200" in connection.recv(100)
            assert comes_to(engine, "0") and engine.running == 1


async def application(scope, receive, send):
    """Stand for vLLM: answer everything."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"vLLM"})
    else:
        await send({"type": f"{scope['type']}.reached"})


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """Return a function that asks an instance with these marks: it returns status, text and headers of the answer."""
    monkeypatch.setattr(availability_host, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AVAILABILITY_DIRECTORY", str(tmp_path / "chat"))
    (tmp_path / "chat").mkdir()

    def asked(marks, path, headers=(), kind="http", method="GET"):
        for mark, text in marks.items():
            (tmp_path / "chat" / mark).write_text(text)
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": kind, "path": path, "method": method, "headers": list(headers), "query_string": b""}
        asyncio.run(availability_host.Availability(application)(scope, receive, send))
        if kind != "http":
            return sent
        text = b"".join(message.get("body", b"") for message in sent)
        return sent[0]["status"], text.decode(), dict(sent[0]["headers"])

    return asked


PROBE = next(iter(words.PROBE.items()))
READY = {"ready": ""}


@pytest.mark.parametrize(
    ("marks", "path", "expected"),
    [
        ({}, "/health", (503, "this instance is starting\n")),
        (READY, "/health", (200, "vLLM")),
        ({"ready": "", "stopping": ""}, "/health", (404, "this instance is stopping\n")),
        # Requests that are on their way are served until the instance is closed.
        ({"ready": "", "stopping": ""}, "/v1/models", (200, "vLLM")),
        ({"ready": "", "stopping": ""}, "/metrics", (200, "vLLM")),
        ({"ready": "", "stopping": "", "closed": ""}, "/v1/models", (503, "this instance is stopping\n")),
        ({"ready": "", "stopping": "", "closed": ""}, "/metrics", (200, "vLLM")),
        ({"ready": "", "withdrawn": ""}, "/v1/models", (503, "a host of this instance is missing\n")),
        ({"ready": "", "withdrawn": ""}, "/health", (200, "vLLM")),
        # Clients may ask while it starts: vLLM answers what it can.
        ({}, "/v1/models", (200, "vLLM")),
    ],
)  # fmt: skip
def test_what_an_instance_answers_by_its_marks(instance, marks, path, expected):
    status, text, headers = instance(marks, path)
    assert (status, text) == expected
    own = text != "vLLM"
    assert headers.get(b"connection") == (b"close" if own else None)
    assert headers.get(b"open-requests") == (b"0" if own else None)
    assert headers.get(b"retry-after") == (b"5" if "missing" in text else None)


def test_the_program_that_waits_for_the_start_reaches_vllm(instance):
    name, value = PROBE
    assert instance({}, "/health", [(name.lower().encode(), str(value).encode())])[:2] == (200, "vLLM")


@pytest.mark.parametrize("path", ["/collective_rpc", "/v1/load_lora_adapter", "/sleep"])
def test_endpoints_of_operators_are_closed_to_others(instance, monkeypatch, path):
    monkeypatch.setenv("OPERATOR_GUARD", "1")
    token = "t" * 32
    refused = (404, "only operators on the host may call this\n")
    assert instance(READY, path, method="POST")[:2] == refused
    header = words.OPERATOR_HEADER.encode()
    assert instance({**READY, "operator": token}, path, [(header, b"x" * 32)], method="POST")[:2] == refused
    assert instance({}, path, [(header, token.encode())], method="POST")[:2] == (200, "vLLM")
    # Also while the instance starts or stops.
    assert instance({"stopping": "", "closed": ""}, path, method="POST")[:2] == refused
    assert instance({}, "/v1/models", method="POST")[:2] == (503, "this instance is stopping\n")


def test_what_is_no_request_reaches_vllm(instance):
    assert instance({"closed": ""}, None, kind="lifespan") == [{"type": "lifespan.reached"}]
    assert instance({"closed": ""}, "/v1/realtime", kind="websocket") == [{"type": "websocket.reached"}]


@pytest.mark.parametrize(("prefill", "kept"), [({}, False), ({"PREFILL_HOSTS": "10.0.0.3:8000"}, True)])
def test_only_behind_a_router_the_engine_hears_where_a_cache_is(tmp_path, monkeypatch, prefill, kept):
    """The router says it in the request. Everywhere else a client could name any address."""
    monkeypatch.setattr(availability_host, "CACHE_DIR", str(tmp_path))
    for name, value in {"AVAILABILITY_DIRECTORY": str(tmp_path), **prefill}.items():
        monkeypatch.setenv(name, value)
    place, got = {"kv_transfer_params": {"remote_host": "10.0.0.3"}}, []

    async def engine(_scope, receive, _send):
        got.append(json.loads((await receive())["body"]))

    async def receive():
        return {"type": "http.request", "body": json.dumps({"prompt": "a", "priority": -1, **place}).encode()}

    scope = {"type": "http", "path": "/v1/completions", "method": "POST", "headers": [PRIORITY], "query_string": b""}
    asyncio.run(availability_host.Availability(engine)(scope, receive, receive))
    assert got == [{"prompt": "a", **(place if kept else {})}]
