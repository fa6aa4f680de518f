# SPDX-License-Identifier: GPL-3.0-or-later
"""How an instance passes on that it is sick: the role's middleware in front of the HTTP server of vLLM."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from tests.fakes.stopping_engine import stopping_engine


def answer(engine, path):
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
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


def unanswered(engine, wanted):
    """Return what /metrics says of unanswered requests, once it says what is wanted or half a second later."""
    for _attempt in range(25):
        connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=20)
        connection.request("GET", "/metrics")
        with connection.getresponse() as found:
            if found.getheader("unanswered") == wanted:
                return wanted
        time.sleep(0.02)
    return found.getheader("unanswered")


def send(engine, text):
    """Send the beginning of a request; return the open connection."""
    connection = socket.create_connection(("127.0.0.1", engine.port), 20)
    connection.sendall(text)
    return connection


WHOLE = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


def test_requests_without_an_answer_are_told_where_a_watchdog_asks(tmp_path):
    with stopping_engine(tmp_path) as engine:
        assert unanswered(engine, "0") is None
        (tmp_path / "watched").touch()
        assert unanswered(engine, "0") == "0"
        engine.stopped = True
        with send(engine, WHOLE % b"/v1/chat/completions"), send(engine, WHOLE % b"/v1/responses"):
            # The engine hangs, and its own figure stays where it was.
            assert unanswered(engine, "2") == "2"
            assert engine.running == 0


@pytest.mark.parametrize(
    "text",
    [
        WHOLE[:-2] % b"/v1/chat/completions",  # the client sends slowly
        WHOLE % b"/v1/load_lora_adapter",
        b"GET /v1/models/x HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=["its body is not here", "nothing is generated", "it asks for nothing"],
)
def test_what_waits_for_no_token_is_not_unanswered(tmp_path, text):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "watched").touch()
        engine.stopped = True
        with send(engine, text):
            assert unanswered(engine, "1") == "0"


def test_an_answer_that_has_begun_is_not_unanswered(tmp_path):
    with stopping_engine(tmp_path) as engine:
        (tmp_path / "watched").touch()
        engine.pause = 2
        with send(engine, WHOLE % b"/v1/chat/completions") as connection:
            assert b"200" in connection.recv(100)
            assert unanswered(engine, "0") == "0" and engine.running == 1
