# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import re
import socket
import ssl
import struct
import threading
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import connections as _connections
from ansible_collections.baremetal.inference.plugins.module_utils.transfer import watch as _watch
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.connections import (
    FetchError,
    HttpSettings,
    RangeConnections,
    TransferError,
)
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.fetch import Settings, probe_sizes
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.watch import RateFloor

# A busy machine needs its time; what has to end is given less.
SITE = HttpSettings(ssl.create_default_context, 20, {})
IMPATIENT = HttpSettings(ssl.create_default_context, 1.5, {})
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


def ask(url, site=SITE):
    connections = RangeConnections(site)
    try:
        return connections.request_range(url, 0, None, url)
    finally:
        connections.close()


@pytest.mark.parametrize(("reset", "reason"), [(True, "broke off: .*reset"), (False, "no data arrived for 1.5 s")])
def test_bytes_before_a_connection_breaks_count(answering, reset, reason):
    url, _accepted = answering("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + "x" * 3000, reset=reset)
    connections, buffer = RangeConnections(SITE if reset else IMPATIENT), memoryview(bytearray(5000))
    answer = connections.request_range(url, 0, None, url)
    assert answer.read_into(buffer) == 3000
    with pytest.raises(TransferError, match=reason):
        answer.read_into(buffer)
    connections.close()


def test_sizes_of_many_files_take_one_connection(answering):
    url, accepted = answering(*(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n" for size in (7, 10**12, 0)))
    assert probe_sizes([url] * 3, Settings(stall_timeout=20)) == [7, 10**12, 0]
    assert len(accepted) == 1


def test_busy_server_is_asked_for_a_size_again(answering):
    busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
    url, _accepted = answering(busy, busy, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
    assert probe_sizes([url], Settings(stall_timeout=20, backoff=0.01)) == [9]


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


@pytest.mark.parametrize(
    "head",
    [
        "200 OK\r\nContent-Length: \xb2\r\n",
        f"200 OK\r\nContent-Length: {'9' * 5000}\r\n",
        f"206 Part\r\nContent-Range: bytes 0-4/{'9' * 5000}\r\n",
        "206 Part\r\nContent-Range: bytes \xb2-4/5\r\n",
        "302 Found\r\nX-Linked-Size: \xb2\r\nLocation: http://[::1\r\n",
        f"416 Range\r\nContent-Range: bytes */{'9' * 5000}\r\n",
        "429 Slow\r\nRetry-After: \xb2\r\n",
        "429 Slow\r\nRetry-After: Sat, 21 Nov 99999999999999999999 12:00:00 GMT\r\n",
    ],
)
def test_header_that_cannot_be_read_is_no_more_than_an_error_of_its_source(answering, head):
    url, _accepted = answering(f"HTTP/1.1 {head}{DATE}Connection: close\r\n\r\n")
    try:
        assert ask(url).size is None
    except (FetchError, TransferError) as exc:
        assert str(exc)


def dribbling(begin, piece):
    """Return a server's address that sends a beginning and then pieces, for ever, and a function that ends it."""
    listener, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve():
        while not ended.is_set():
            connection, _address = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(begin)
                for _piece in itertools.takewhile(lambda _n: not ended.wait(0.02), itertools.count()):
                    try:
                        connection.sendall(piece)
                    except OSError:
                        break

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}/a", ended


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"H"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50),
        (b"HTTP/1.1 404 No\r\nContent-Length: 60000\r\n\r\n", b"x"),
    ],
    ids=["header", "status", "continue", "skipped body"],
)
def test_head_that_never_ends_is_left_at_its_deadline(monkeypatch, begin, piece):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    url, ended = dribbling(begin, piece)
    started = time.monotonic()
    with pytest.raises((TransferError, FetchError), match=r"no answer within 1.5 s|HTTP 404 No"):
        ask(url, IMPATIENT)
    ended.set()
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED + b"4\r\nfour\r\n", b"0"),
        (CHUNKED + b"0\r\n", b"X: trailer\r\n"),
    ],
    ids=["length", "close", "chunks", "size of a chunk", "trailers"],
)
def test_body_that_comes_byte_by_byte_is_left_for_its_rate_or_its_deadline(monkeypatch, begin, piece):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(_watch, "WINDOW_SECONDS", 0.4)
    url, ended = dribbling(begin, piece)
    connections = RangeConnections(HttpSettings(ssl.create_default_context, 1.5, {}, RateFloor(10_000)))
    answer, started = connections.request_range(url, 0, None, url), time.monotonic()
    with pytest.raises((FetchError, TransferError), match=r"only \d+ bytes arrived in|no data arrived for 1.5 s"):
        answer.read_all(50_000)
    ended.set()
    connections.close()
    assert time.monotonic() - started < 60


def test_text_of_a_server_is_escaped_and_cut(answering):
    url, _accepted = answering(
        f"HTTP/1.1 404 \x1b[31mred{'x' * 5000}\r\nContent-Length: 0\r\n\r\n",
        f"HTTP/1.1 \x1b[31m{'x' * 5000}\r\n\r\n",
    )
    for _answer in range(2):
        with pytest.raises((FetchError, TransferError)) as error:
            ask(url)
        assert str(error.value).isprintable() and len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("answer", "headers", "hint"),
    [
        ("401 No", {}, "HTTP 401 No; it needs a token, and none was given"),
        ("401 No", {"Authorization": "Bearer x"}, "HTTP 401 No; is the token right, and not expired?"),
        ("401 No\r\nX-Error-Code: GatedRepo", {}, "the model is gated and no token was given"),
        (
            "403 No\r\nX-Error-Code: GatedRepo",
            {"Authorization": "Bearer x"},
            "the model is gated and the token's account has no access",
        ),
        # A fine-grained token that may not read gated repositories.
        ("403 No", {"Authorization": "Bearer x"}, "the token has no access: ask for it on the model's page"),
        # The address of a store, whose signature is over.
        ("403 No", {}, "HTTP 403 No; is the token right, and not expired?"),
    ],
)
def test_a_refusal_says_what_to_do(answering, answer, headers, hint):
    url, _accepted = answering(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n")
    connections = RangeConnections(HttpSettings(ssl.create_default_context, 20, headers, RateFloor(0)))
    with pytest.raises(FetchError, match=re.escape(hint)):
        connections.request_range(url, 0, None, url)
    connections.close()


def test_a_refusal_behind_a_redirect_names_the_origin(answering):
    url, _accepted = answering("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
    settings = HttpSettings(ssl.create_default_context, 20, {"Authorization": "Bearer x"}, RateFloor(0))
    connections = RangeConnections(settings)
    hint = f"{url}: HTTP 403 No; https://mirror.example/a redirects there, and no token goes along"
    with pytest.raises(FetchError, match=re.escape(hint)):
        connections.request_range(url, 0, None, "https://mirror.example/a?signature=x")
    connections.close()


def test_server_that_refuses_head_is_asked_for_the_first_byte(answering):
    for status in (400, 403, 404, 405):
        url, _accepted = answering(
            f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-0/77\r\nContent-Length: 1\r\n\r\nx",
        )
        assert probe_sizes([url], Settings(stall_timeout=20)) == [77]
