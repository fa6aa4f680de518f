# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that hardly reads hides the answers that keep places among thousands, or has those of others ended.

The service's own class asks the real HAProxy, by a clock that goes faster.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import time

import pytest
from ansible_collections.baremetal.inference.plugins.module_utils.gateway import readers_host

from tests.fakes.gateways import HAPROXY, KEY, until
from tests.hostile.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, RESET, SETTINGS, Http2, frame, literal
from tests.hostile.test_gateway_readers import CHAT, PLACES, Streams, body, one_engine, running

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CONNECTIONS, STREAMS = 40, 100


class Service(readers_host.Readers):
    """Looks when a test says so; ``asked`` has what HAProxy was asked about streams, with the bytes of the answers."""

    def __init__(self, found, monkeypatch):
        self.now, self.asked, self.before_the_end = 0.0, [], lambda: None
        ask = readers_host.ask_root_in_parts

        def counted(path, command, **seconds):
            parts = list(ask(path, command, **seconds))
            self.asked.append((command, sum(map(len, parts))))
            yield from parts

        monkeypatch.setattr(readers_host, "ask_root_in_parts", counted)
        super().__init__(
            found.paths["socket"], str(found.directory / "master"), str(found.directory / "ended"), self.at
        )

    def at(self):
        return self.now

    def look(self, times):
        for _time in range(times):
            self.now += 8
            self.step()

    def _end(self, found, services):
        self.before_the_end()
        super()._end(found, services)


@pytest.fixture
def one(tmp_path):
    # Enough memory for the connections of the flood.
    with one_engine(tmp_path, __gateway_host={"memory_kib": 16 << 20}) as found:
        yield found


@pytest.fixture
def service(one, monkeypatch):
    return Service(one, monkeypatch)


def flood(stack, port):
    """Ask in many streams whose answers nobody reads: most get 429."""
    text = body("ten")
    headers = (
        (":method", "POST"), (":scheme", "http"), (":authority", "gw"), (":path", CHAT),
        ("content-length", str(len(text))), ("authorization", f"Bearer {KEY}"), ("content-type", "application/json"),
    )  # fmt: skip
    block = b"".join(literal(*each) for each in headers)
    requests = b"".join(
        frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, text)
        for stream in range(1, 2 * STREAMS, 2)
    )
    connections = [stack.enter_context(Http2(port)) for _number in range(CONNECTIONS)]
    for each in connections:
        each.socket.sendall(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
    time.sleep(0.3)
    for each in connections:
        each.socket.sendall(requests)


def unread(found):
    """Return how many answers wait for their clients, of the gateway itself too."""
    return len(re.findall(r"(?m)^0x.* be=chat .*(?:rp\[[^]]*,wx=|scf=\[[^]]*,wex=)[^],]", found.tell("show sess")))


@pytest.mark.parametrize("walks", [50, PLACES - 1])
def test_thousands_of_unread_refusals_hide_no_slow_reader(one, service, monkeypatch, walks):
    """A look asks for the list once, and then for those that have a place, however many others there are."""
    monkeypatch.setattr(readers_host, "_WALKS", walks)
    eve = Streams(one.port, ["large"] * PLACES)
    with contextlib.closing(eve.http.socket), contextlib.ExitStack() as stack:
        until(lambda: running(one) == PLACES, 10)
        flood(stack, one.port)
        # The others wait for a place.
        until(lambda: unread(one) > CONNECTIONS * STREAMS / 5, 30)
        service.look(4)
        assert (
            service.ended == 0
            and [each.count("show sess") for each, _bytes in service.asked]
            == ([1, PLACES] if walks > PLACES else [1, 1]) * 4
        )
        # Of the list some hundred bytes of each, of the details some thousand.
        most = 400 if walks > PLACES else 3400
        assert sum(size for _command, size in service.asked) < CONNECTIONS * STREAMS * most * 4
        service.look(3)
        assert service.ended == PLACES


def test_unread_refusals_take_no_place_and_let_nobody_wait_in_vain(one):
    """They count as requests of the service for HAProxy, so thousands more got into the queue than can be served."""
    with contextlib.ExitStack() as stack:
        flood(stack, one.port)
        until(lambda: unread(one) > CONNECTIONS * STREAMS / 5, 30)
        waiting = int(one.stats()[-1]["qcur"])
        assert PLACES <= waiting <= 3 * 2 * PLACES


def addresses(found, pattern=""):
    return set(re.findall(rf"(?m)^(0x[0-9a-f]+): .*{pattern}", found.tell("show sess")))


def test_no_request_is_ended_because_it_has_the_address_of_a_slow_one(one, service):
    """Eve ends hers after the look, and HAProxy gives the memory to the next streams: those of others."""
    others = []
    with contextlib.ExitStack() as stack:

        def asks(number):
            others.append(Streams(one.port, ["large"] * number))
            stack.callback(others[-1].http.socket.close)

        asks(PLACES)
        eve = others.pop()
        until(lambda: running(one) == PLACES, 10)
        slow = addresses(one, " srv=gw--chat-1 ")

        def reset():
            if len(others) == 1:
                for stream in eve.streams:
                    eve.http.socket.sendall(frame(RESET, 0, stream, struct.pack(">I", 8)))
                until(lambda: not slow & addresses(one), 10)
                # In each thread of HAProxy, which have memory of their own.
                for _number in range(8):
                    asks(5)
                until(lambda: running(one) == PLACES, 10)

        # Somebody waits.
        asks(1)
        until(lambda: one.stats()[-1]["qcur"] == "1", 10)
        service.before_the_end = reset
        service.look(6)
        assert slow & addresses(one), "no address was used again"
        for each in others:
            each.http.read(lambda: False, 0.2)
            assert not each.http.resets
        assert service.ended == 0
