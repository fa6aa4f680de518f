# SPDX-License-Identifier: GPL-3.0-or-later
"""The client of an instance, against servers that answer oddly."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import tracemalloc

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.instance.api_host import MAX_BYTES, NoAnswerError, ask
from ansible_collections.baremetal.inference.plugins.module_utils.instance.config_file import Listening

from tests.fakes.gateways import free_port


@pytest.fixture
def server():
    """Serve one connection with a function; returns where it listens."""
    listener = socket.create_server(("127.0.0.1", 0))

    def start(serve):
        def run():
            connection, _address = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                serve(connection)

        threading.Thread(target=run, daemon=True).start()
        return Listening("127.0.0.1", listener.getsockname()[1])

    yield start
    listener.close()


HEAD = b"HTTP/1.1 200 OK\r\nOpen-Requests: 3\r\nContent-Length: 2\r\n\r\n"


def test_an_answer_has_status_headers_of_any_case_and_body(server):
    answer = ask(server(lambda connection: connection.sendall(HEAD + b"ok")), "GET", "/health", 5)
    assert (answer.status, answer.headers["open-requests"], answer.text) == (200, "3", "ok")


def drip(connection):
    connection.sendall(HEAD[:-2])
    while True:
        connection.sendall(b"X: y\r\n")
        time.sleep(0.05)


@pytest.mark.parametrize("serve", [drip, lambda _connection: time.sleep(60)], ids=["drip", "silence"])
def test_an_answer_that_does_not_end_takes_no_longer_than_its_time(server, serve):
    began = time.monotonic()
    with pytest.raises(OSError, match=r"."):
        ask(server(serve), "GET", "/metrics", 0.5)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", HEAD + b"o", b"HTTP/1.1 200 OK\r\n" + b"a" * 70000],
    ids=["nothing", "no HTTP", "no status", "cut", "long header"],
)
def test_what_is_no_answer_is_an_error_of_one_kind(server, answer):
    with pytest.raises(OSError, match=r"."):
        ask(server(lambda connection: connection.sendall(answer)), "GET", "/health", 5)


def test_an_answer_that_is_cut_is_none(server):
    with pytest.raises(NoAnswerError, match="IncompleteRead"):
        ask(server(lambda connection: connection.sendall(HEAD + b"o")), "GET", "/health", 5)


def test_the_rest_of_an_endless_body_is_not_read(server):
    def flood(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    assert len(ask(server(flood), "GET", "/metrics", 20).body) == MAX_BYTES


def test_nothing_listens():
    with pytest.raises(ConnectionRefusedError):
        ask(Listening("127.0.0.1", free_port()), "GET", "/health", 5)


def chunks(size, number):
    def serve(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        one = b"%x\r\n%s\r\n" % (size, b"a" * size)
        for _times in range(number // 1000):
            connection.sendall(one * 1000)
        connection.sendall(b"0\r\n\r\n")

    return serve


def test_a_body_in_chunks_is_read_to_its_end_or_to_the_bound(server):
    assert ask(server(chunks(400, 1000)), "GET", "/metrics", 5).body == b"a" * 400_000
    assert len(ask(server(chunks(9000, 1000)), "GET", "/metrics", 5).body) == MAX_BYTES


def test_a_body_in_chunks_of_a_byte_takes_no_memory(server):
    """HTTPResponse.read would keep an object of 33 bytes, and a place in a list, for each of them."""
    tracemalloc.start()
    try:
        with pytest.raises(NoAnswerError, match="too many chunks"):
            ask(server(chunks(1, 2_000_000)), "GET", "/metrics", 5)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
