# Copyright (c) 2026, the baremetal.inference authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import ssl
import struct
import threading

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import connections as _connections
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.connections import (
    FetchError,
    HttpSettings,
    RangeConnections,
    TransferError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings, probe_sizes

SITE = HttpSettings(ssl.create_default_context, 0.5, {})
DATE = "Date: Sat, 21 Nov 2026 12:00:00 GMT\r\n"


@pytest.fixture
def answering(monkeypatch):
    """Return a function that starts a server which sends texts, one after the other, and gives its address."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    listener = socket.create_server(("127.0.0.1", 0))
    accepted = []

    def serve(answers, reset):
        left = list(answers)
        while left:
            connection, _address = listener.accept()
            accepted.append(connection)
            while left and connection.recv(65536):
                connection.sendall(left.pop(0).encode())
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # What was sent is to arrive before the reset throws it away.
                threading.Event().wait(0.1)
                connection.close()

    def start(*answers, reset=False):
        threading.Thread(target=serve, args=(answers, reset), daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/a", accepted

    yield start
    for connection in accepted:
        connection.close()
    listener.close()


def ask(url):
    connections = RangeConnections(SITE)
    try:
        return connections.request_range(url, 0, None, url)
    finally:
        connections.close()


@pytest.mark.parametrize(("reset", "reason"), [(True, "broke off: .*reset"), (False, "no byte came for 0.5 s")])
def test_bytes_before_a_connection_breaks_count(answering, reset, reason):
    url, _accepted = answering("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + "x" * 3000, reset=reset)
    connections, buffer = RangeConnections(SITE), memoryview(bytearray(5000))
    answer = connections.request_range(url, 0, None, url)
    assert answer.read_into(buffer) == 3000
    with pytest.raises(TransferError, match=reason):
        answer.read_into(buffer)
    connections.close()


def test_sizes_of_many_files_take_one_connection(answering):
    url, accepted = answering(*(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n" for size in (7, 10**12, 0)))
    assert probe_sizes([url] * 3, Settings(stall_timeout=1)) == [7, 10**12, 0]
    assert len(accepted) == 1


def test_busy_server_is_asked_for_a_size_again(answering):
    busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    url, _accepted = answering(busy, busy, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    assert probe_sizes([url], Settings(stall_timeout=1, backoff=0.01)) == [9]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("Sat, 21 Nov 2026 12:00:09 GMT", 9),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0),
        ("-5", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_server_says_how_long_it_wants_to_be_left_alone(answering, text, seconds):
    url, _accepted = answering(f"HTTP/1.1 429 Slow\r\n{DATE}Retry-After: {text}\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(TransferError) as error:
        ask(url)
    assert (error.value.wait, error.value.is_answer) == (seconds, True)


def test_server_that_wants_to_be_left_alone_for_long_is_given_up(answering):
    url, _accepted = answering(f"HTTP/1.1 503 Slow\r\n{DATE}Retry-After: 3600\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(FetchError, match="HTTP 503 Slow: the server asks to wait 3600 s"):
        ask(url)


def test_bytes_that_come_slowly_are_handed_on(answering, monkeypatch):
    monkeypatch.setattr(_connections, "READ_SLICE_SECONDS", -1)
    url, _accepted = answering("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour")
    connections = RangeConnections(SITE)
    answer = connections.request_range(url, 0, None, url)
    assert answer.read_into(memoryview(bytearray(10))) == 4
    # It did not wait for more.
    assert answer.failure is None
    connections.close()
