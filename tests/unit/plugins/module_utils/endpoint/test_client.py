# SPDX-License-Identifier: GPL-3.0-or-later
"""The client and the judge together, against a real server: what is sent, what comes back, what is said of it."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
import tracemalloc

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.client import AddressError, TimedClient
from ansible_collections.baremetal.inference.plugins.module_utils.endpoint.questions import (
    CHECKS,
    Question,
    judge,
    request_of,
)

from tests.fakes.dripping import DRIPS, dripping
from tests.fakes.gateways import HANGS
from tests.fakes.vllm import (
    ANSWER,
    MODEL,
    USAGE,
    chat_body,
    completion_body,
    fake_vllm,
    response_body,
    stream_chunks,
)

QUESTION = Question((MODEL,), "Is the fleet ready?", "The fleet is", "fleet is ready", 64)


@pytest.fixture
def fake():
    with fake_vllm() as server:
        yield server


def ask(fake, name, question=QUESTION, timeout=60.0, **client):
    reply = TimedClient(fake.url, **client).request(*request_of(name, question), timeout)
    return judge(name, question, reply)


@pytest.mark.parametrize("name", CHECKS)
def test_a_good_server_passes(fake, name):
    finding = ask(fake, name)
    assert finding.ok, finding.detail
    assert finding.row() == {"name": name, "ok": True, "seconds": round(finding.seconds, 3), "detail": finding.detail}
    texts = {**dict.fromkeys(("chat", "chat_stream", "responses"), ANSWER), "completions": " ready."}
    assert finding.answer == texts.get(name, "") and not finding.doubt
    assert "Authorization" not in repr(fake.asked) and fake.asked[0][2] is None


def test_the_stream_asks_for_its_usage_and_gives_the_speed(fake):
    fake.behaviour["stream"] = lambda handler: handler.send_stream(stream_chunks(), pause=0.02)
    speed = ask(fake, "chat_stream").speed
    assert fake.asked[0][1]["stream_options"] == {"include_usage": True}
    # The first text is in the second chunk and the last choice in the seventh: 0.02 s each, and what they cost.
    assert 0.04 <= speed.time_to_first_token_s < 5
    assert USAGE["completion_tokens"] / 10 < speed.tokens_per_second <= USAGE["completion_tokens"] / 0.14


def test_what_is_asked_is_short_and_repeatable(fake):
    for name in CHECKS[1:5]:
        ask(fake, name)
    sent = [payload for _path, payload, _key in fake.asked]
    assert [payload["temperature"] for payload in sent] == [0, 0, 0, 0]
    assert [payload.get("max_tokens", payload.get("max_output_tokens")) for payload in sent] == [64] * 4
    assert [payload["model"] for payload in sent] == [MODEL] * 4


BAD = [
    ("models", {"data": []}, f"GET /v1/models: lists no model, but not {MODEL}"),
    ("models", {"data": [{"id": "other"}]}, f"GET /v1/models: lists other, but not {MODEL}"),
    ("models", {"data": [{}]}, "data[0].id is missing; data[0] is an empty object"),
    (
        "chat",
        chat_body(content=""),
        "choices[0].message.content is empty (10 tokens, finish_reason stop), expected text",
    ),
    (
        "chat",
        chat_body(content=None, finish="length", reasoning="Hm"),
        "went into reasoning (finish_reason length); raise",
    ),
    ("chat", chat_body(content=[1]), "choices[0].message.content is a list of 1, expected text"),
    ("chat", chat_body(content="No idea."), "answered 'No idea.', which does not contain 'fleet is ready'"),
    ("chat", {"id": "1", "object": "x"}, "choices is missing; the answer is an object with id, object"),
    ("chat", {"choices": []}, "choices[0] is missing; choices is an empty list"),
    (
        "chat",
        {"choices": [{"message": {"role": "assistant"}}], "usage": USAGE},
        "choices[0].message.content is missing",
    ),
    ("chat", {**chat_body(), "usage": None}, "usage.completion_tokens is missing; usage is null"),
    ("chat", [], "the answer is an empty list, expected a JSON object"),
    ("responses", response_body(text=" "), "output holds no text; found reasoning, message, expected a message"),
    (
        "responses",
        response_body(status="incomplete", reason="max_output_tokens"),
        "(max_output_tokens), expected 'comple",
    ),
    ("responses", {**response_body(), "output": None}, "output is null, expected a list"),
    (
        "completions",
        completion_body(text=""),
        "POST /v1/completions: choices[0].text is empty (10 tokens, finish_reason",
    ),
    ("completions", {"choices": [{"text": 5}]}, "choices[0].text is 5, expected text"),
]


@pytest.mark.parametrize(("name", "body", "said"), BAD)
def test_a_bad_answer_is_named(fake, name, body, said):
    fake.behaviour[request_of(name, QUESTION)[1]] = lambda handler: handler.send_json(body)
    finding = ask(fake, name)
    assert not finding.ok
    assert said in finding.detail
    assert finding.answer == "" and finding.speed is None


def test_an_answer_that_is_not_json(fake):
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_text('{"choices": [')
    detail = ask(fake, "chat").detail
    assert detail.startswith("POST /v1/chat/completions: the answer is not JSON (Expecting value")
    assert detail.endswith("""found '{"choices": ['""")


def test_an_empty_body(fake):
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_text("")
    assert ask(fake, "chat").detail == "POST /v1/chat/completions: the answer is empty, expected a JSON object"


def test_an_answer_that_breaks_off(fake):
    def cut(handler):
        handler.close_connection = True
        handler.send_text('{"choices": [', length=500)

    fake.behaviour["/v1/chat/completions"] = cut
    detail = ask(fake, "chat").detail
    assert detail.endswith("answered 200, but the connection broke off after 13 bytes, 487 are missing")


def test_a_server_error_carries_the_servers_words(fake):
    error = {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "code": 404}}
    fake.behaviour["/v1/chat/completions"] = lambda handler: handler.send_json(error, 404)
    assert ask(fake, "chat").detail == "POST /v1/chat/completions: answered 404: The model `x` does not exist."


def test_a_late_answer(fake):
    fake.behaviour["/v1/chat/completions"] = lambda _handler: time.sleep(20)
    finding = ask(fake, "chat", timeout=0.3)
    assert finding.detail == "POST /v1/chat/completions: no answer within 0.3 s"
    assert finding.seconds < 5


def test_an_answer_that_drips_is_late_too(fake):
    fake.behaviour["stream"] = lambda handler: handler.send_stream(stream_chunks() * 10, pause=0.1)
    finding = ask(fake, "chat_stream", timeout=1.5)
    assert "the stream broke after" in finding.detail and "not complete after 1.5 s" in finding.detail
    # The whole stream takes 8 s.
    assert finding.seconds < 5


@pytest.mark.parametrize("drip", DRIPS)
def test_no_part_of_an_answer_goes_on_for_ever(drip):
    with dripping(drip) as address:
        began = time.monotonic()
        reply = TimedClient(f"http://{address}").request("GET", "/v1/models", None, 1.0)
    assert re.match("no answer within 1 s|the answer was not complete after 1 s", reply.failure)
    assert time.monotonic() - began < HANGS


def test_a_stream_cut_in_the_middle(fake):
    def cut(handler):
        handler.start_stream()
        handler.send_piece('data: {"choices": [{"index": 0, "delta": {"content": "The"}}]}\n\n')
        handler.wfile.write(b"40\r\ndata: {")
        handler.close_connection = True

    fake.behaviour["stream"] = cut
    assert "the stream broke after 1 chunks: the connection broke off after" in ask(fake, "chat_stream").detail


def test_a_stream_without_its_end(fake):
    fake.behaviour["stream"] = lambda handler: handler.send_stream(stream_chunks(), done=False)
    assert ask(fake, "chat_stream").detail.endswith("the stream ended after 8 chunks without 'data: [DONE]'")


def test_a_stream_without_usage(fake):
    fake.behaviour["stream"] = lambda handler: handler.send_stream(stream_chunks(usage=False))
    assert "no chunk held usage.completion_tokens" in ask(fake, "chat_stream").detail


def test_a_stream_without_text(fake):
    fake.behaviour["stream"] = lambda handler: handler.send_stream(stream_chunks(texts=()))
    assert "choices[0].delta.content is empty (10 tokens, finish_reason stop)" in ask(fake, "chat_stream").detail


def test_a_stream_that_is_none(fake):
    fake.behaviour["stream"] = lambda handler: handler.send_json(chat_body())
    assert 'answered 200 without one event; found \'{"id"' in ask(fake, "chat_stream").detail


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        ({"error": {"message": "engine died", "code": 500}}, "chunk 0 of the stream: it is an error: engine died"),
        ({"object": "x"}, "chunk 0 of the stream: choices is missing; the answer is an object with object"),
        ({"choices": [{"index": 0}]}, "chunk 0 of the stream: choices[0].delta is missing; choices[0] is an object"),
    ],
)
def test_a_bad_chunk_is_named(fake, chunk, said):
    fake.behaviour["stream"] = lambda handler: handler.send_stream([chunk])
    assert said in ask(fake, "chat_stream").detail


def test_the_key_is_sent_and_a_missing_one_is_named(fake):
    fake.api_key = "sk-planted-0123456789"
    assert ask(fake, "chat", api_key="sk-planted-0123456789").ok
    detail = ask(fake, "chat").detail
    assert "answered 401 (Unauthorized); the server expects another API key: set api_key" in detail


@pytest.mark.parametrize("key", ["sk-planted secret", "sk-planted\n", "sk-plantéd"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(key):
    with pytest.raises(AddressError) as caught:
        TimedClient("http://127.0.0.1:1", api_key=key)
    assert "planted" not in str(caught.value) and "a blank, a line break" in str(caught.value)


def test_nobody_listens():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        reply = TimedClient(f"http://127.0.0.1:{port}").request("GET", "/health", None, 2)
    assert (reply.status, reply.failure) == (0, f"connection refused, nothing listens on 127.0.0.1:{port}")


def test_what_listens_speaks_no_http():
    with socket.create_server(("127.0.0.1", 0)) as server:
        import threading

        def greet():
            connection, _peer = server.accept()
            connection.recv(1000)
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        reply = TimedClient(f"http://127.0.0.1:{server.getsockname()[1]}").request("GET", "/health", None, 2)
        thread.join()
    assert "does not speak HTTP (BadStatusLine)" in reply.failure


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("127.0.0.1:8000", "is not an address; expected something like http://127.0.0.1:8000"),
        ("http://127.0.0.1:99999", "is not an address"),
        ("ftp://host", "is not an address"),
        ("http://127.0.0.1:8000/v1/", "ends in /v1; give the server's address without it"),
        ("http://user:hunter2@host", "holds a user or a password"),
        ("http://host/?key=1", "has a query"),
    ],
)
def test_a_wrong_address_is_refused(url, said):
    with pytest.raises(AddressError) as caught:
        TimedClient(url)
    assert said in str(caught.value) and "hunter2" not in str(caught.value)


def test_an_answer_of_line_ends_alone_takes_little_memory():
    body = b"\n" * (15 << 20)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection = server.accept()[0]
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        thread = threading.Thread(target=serve)
        thread.start()
        tracemalloc.start()
        try:
            reply = TimedClient(f"http://127.0.0.1:{server.getsockname()[1]}").request("GET", "/", None, 60)
            assert tracemalloc.get_traced_memory()[1] < 100 << 20
        finally:
            tracemalloc.stop()
            thread.join()
    assert reply.failure == "the answer has more than 200000 lines"
