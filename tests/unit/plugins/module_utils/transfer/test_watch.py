# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import http.client
import io
import socket
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.transfer.watch import (
    RateFloor,
    SourceTooSlowError,
    Watch,
    WatchedResponse,
)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def wait(floor, clock, seconds, length):
    """Let one connection wait for the source."""
    floor.begin()
    clock.now += seconds
    floor.end(length)


def test_rate_is_judged_after_a_minute_and_again_after_the_next(clock):
    floor = RateFloor(100, clock)
    wait(floor, clock, 59, 0)
    assert floor.seconds_left() == 1
    wait(floor, clock, 1, 6000)
    assert floor.seconds_left() == 60
    wait(floor, clock, 61, 5999)
    for _time in range(2):
        with pytest.raises(SourceTooSlowError, match=r"only 5999 bytes arrived in 61 s, expected 100 bytes/s or more"):
            floor.seconds_left()


def test_time_in_which_nobody_waits_for_the_source_does_not_count(clock):
    floor = RateFloor(100, clock)
    wait(floor, clock, 10, 0)
    clock.now += 1000
    assert floor.seconds_left() == 50


def test_connections_that_wait_together_wait_once(clock):
    floor = RateFloor(100, clock)
    floor.begin()
    clock.now += 10
    floor.begin()
    clock.now += 10
    floor.end(1)
    assert floor.seconds_left() == 40
    clock.now += 5
    floor.end(1)
    assert floor.seconds_left() == 35


def test_no_rate_is_never_too_low(clock):
    floor = RateFloor(0, clock)
    wait(floor, clock, 10**6, 0)
    assert floor.seconds_left() == float("inf")


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_head_has_to_be_complete_at_the_deadline_even_while_bytes_come(pair):
    ours, theirs = pair
    watch = Watch(RateFloor())
    response = WatchedResponse(ours, watch=watch)
    theirs.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    watch.allow(0.3)
    started = time.monotonic()
    with pytest.raises(socket.timeout):
        response.begin()
    assert time.monotonic() - started < 10
    assert ours.gettimeout() == 30, "a request sent afterwards has its usual time"


def test_answers_before_the_answer_end_at_the_deadline_too(pair):
    ours, theirs = pair
    watch = Watch(RateFloor())
    theirs.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 500)
    watch.allow(-1)
    with pytest.raises(socket.timeout):
        WatchedResponse(ours, watch=watch).begin()


def test_whole_answer_is_read_and_the_socket_outlives_its_owner(pair):
    ours, theirs = pair
    watch = Watch(RateFloor(10))
    watch.allow(30)
    theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
    response = WatchedResponse(ours, watch=watch)
    # As http.client does for an answer that ends the connection.
    ours.close()
    response.begin()
    assert (response.status, response.read()) == (http.client.OK, b"hello")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n",
        "HTTP/1.1 200\r\n\r\n",
        "HTTP/1.1 204 None\r\n\r\n",
        "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.1 206 Part\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\n" + "X: y\r\n" * 101 + "\r\n",
        "HTTP/1.1 200 OK\r\nX: " + "y" * 70000 + "\r\n\r\n",
        "",
    ],
)
def test_head_is_read_as_the_standard_library_reads_it(head, method):
    assert read_with(WatchedResponse, head, method, watch=Watch(RateFloor())) == read_with(
        http.client.HTTPResponse, head, method
    )


class Canned:
    """A socket with an answer in it."""

    def __init__(self, content):
        self._content = io.BytesIO(content)

    def makefile(self, _mode):
        return io.BufferedReader(_Raw(self._content))

    def gettimeout(self):
        return None

    def settimeout(self, _seconds):
        """It never waits."""

    def recv_into(self, buffer):
        return self._content.readinto(buffer)


class _Raw(io.RawIOBase):
    def __init__(self, content):
        super().__init__()
        self._content = content

    def readable(self):
        return True

    def readinto(self, buffer):
        return self._content.readinto(buffer)


def read_with(kind, head, method, **options):
    response = kind(Canned(head.encode("latin-1") + b"hello"), method=method, **options)
    try:
        response.begin()
    except http.client.HTTPException as exc:
        return type(exc)
    names = ("status", "reason", "version", "chunked", "length", "will_close")
    return *(getattr(response, name) for name in names), response.read()
