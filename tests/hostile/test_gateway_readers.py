# SPDX-License-Identifier: GPL-3.0-or-later
"""A client reads its answers a byte now and then, so that its requests keep the places of an engine."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.fakes.gateways import HANGS, HAPROXY, KEY, client, gateway, plan, program, repeating, until
from tests.hostile.http2 import SETTINGS, WINDOW, Http2, frame

pytestmark = pytest.mark.skipif(HAPROXY is None and not os.environ.get("GATEWAY_REQUIRED"), reason="needs haproxy")
CHAT, SERVER, PLACES = "/v1/chat/completions", "gw--chat-1", 4
GOLD = "gold-key-" + "0123456789abcdef" * 2
LARGE = 6_000_000


class Engine(BaseHTTPRequestHandler):
    """Answers in the moment, with as much as the body says; "drips" takes longer than any client may."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        parts = [b"x" * (LARGE if b"large" in body else 3000 if b"small" in body else 10)]
        if b"drips" in body:
            parts = [b"x" * 100] * 18
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Length", str(sum(map(len, parts))))
            self.end_headers()
            for part in parts:
                self.wfile.write(part)
                time.sleep(2.5 if len(parts) > 1 else 0)

    def log_message(self, *_arguments):
        pass


class Engines(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 64


@contextlib.contextmanager
def one_engine(directory, **variables):
    """A gateway in front of one engine with four places."""
    with Engines(("127.0.0.1", 0), Engine) as engine:
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        clients = [client("eve", KEY, team="research"), client("bob", GOLD, team="product")]
        more = {
            "plans": {"chat-1": plan(engine.server_port, args={"max-num-seqs": PLACES})},
            "options": {
                "admission": "auto",
                "teams": {"research": {"class": "standard"}, "product": {"class": "gold"}},
            },
            "variables": variables,
        }
        try:
            with gateway(directory, [engine.server_port], clients, **more) as found:
                until(lambda: found.state(SERVER) == "UP")
                yield found
        finally:
            engine.shutdown()


@pytest.fixture
def one(tmp_path):
    """The same with the service that ends slow readers."""
    with one_engine(tmp_path) as found, watched(found):
        yield found


@contextlib.contextmanager
def watched(found):
    found.lines, found.counter = found.directory / "readers.log", found.directory / "ended"
    words, environ = program(
        "gateway-tool", "readers", found.paths["socket"], found.directory / "master", found.counter
    )
    if os.geteuid() == 0:
        # As its unit runs it: root without the rights of root.
        words = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", *words]
    with found.lines.open("w") as log, subprocess.Popen(words, env=environ, stdout=log, stderr=log) as process:
        yield
        process.terminate()


def body(kind):
    return b'{"model":"m","messages":[],"x":"%s"}' % kind.encode()


class Streams:
    """Requests over one connection of HTTP/2, whose answers are read as fast as ``grant`` gives leave."""

    def __init__(self, port, kinds, window=0):
        self.http = Http2(port)
        self.http.socket.sendall(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
        time.sleep(0.3)
        headers = (("authorization", f"Bearer {KEY}"), ("content-type", "application/json"))
        self.streams = [self.http.request("POST", CHAT, headers, body(kind)) for kind in kinds]

    def grant(self, number):
        for stream in self.streams:
            self.http.socket.sendall(frame(WINDOW, 0, stream, struct.pack(">I", number)))
        self.http.read(lambda: False, 0.2)


def plain(stack, port, kind, buffer):
    """A request over HTTP/1.1 of a client with a small buffer."""
    connection = stack.enter_context(socket.socket())
    # As in a network: the kernel sends no more at once than some segments, which are large on loopback.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1448)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(HANGS)
    connection.connect(("127.0.0.1", port))
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body(kind))}\r\n\r\n"
    )
    connection.sendall(head.encode() + body(kind))
    return connection


def gold_within(found, seconds):
    """Ask as gold until there is an answer; return how long it took."""
    began = time.monotonic()
    until(lambda: found.ask("POST", CHAT, GOLD, body("ten"))[0] == 200, seconds)
    return time.monotonic() - began


def running(found):
    return int(found.stat(SERVER, "scur"))


@pytest.mark.parametrize("kind", ["large", "small"])
def test_streams_that_are_read_a_byte_now_and_then_keep_no_places(one, kind):
    eve = Streams(one.port, [kind] * PLACES)
    with repeating(lambda: eve.grant(1), 8), contextlib.closing(eve.http.socket):
        if kind == "large":
            until(lambda: running(one) == PLACES, 10)
        assert gold_within(one, 60) < 60
    if kind == "large":
        until(lambda: int(one.counter.read_text()) >= 1, 10)
        found = re.search(
            r"chat: ended the request of 127\.0\.0\.1:\d+, which read \d+ bytes of the answer in (\d+) s",
            one.lines.read_text(),
        )
        assert found and 30 <= int(found[1]) < 60
        # The engine did nothing wrong.
        assert one.stat(SERVER, "hrsp_5xx") == "0"


@pytest.mark.long
def test_connections_that_are_read_slowly_keep_no_places(one):
    """Some kilobytes a second: with less HAProxy itself takes the client for silent, since the kernel has buffers."""
    with contextlib.ExitStack() as stack:
        connections = [plain(stack, one.port, "large", 2304) for _number in range(PLACES)]
        until(lambda: running(one) == PLACES, 10)
        stack.enter_context(repeating(lambda: [each.recv(4000) for each in connections], 1))
        assert gold_within(one, 60) < 60
        until(lambda: int(one.counter.read_text()) >= 1, 10)


@pytest.mark.long
def test_slow_links_and_slow_engines_keep_their_answers(one):
    """They take fifty kilobytes a second, or wait for the engine, while others wait and a drain does."""
    fast, drips = Streams(one.port, ["large"], 50_000), Streams(one.port, ["drips"], 1 << 20)
    with contextlib.ExitStack() as stack:
        links = [plain(stack, one.port, "large", 65536), plain(stack, one.port, "drips", 65536)]
        until(lambda: running(one) == PLACES, 10)
        stack.enter_context(repeating(lambda: fast.grant(50_000), 0.8))
        stack.enter_context(repeating(lambda: links[0].recv(50_000, socket.MSG_WAITALL), 1))
        one.tell(f"set server chat/{SERVER} state drain")
        assert drips.http.finished(drips.streams[0]) and len(drips.http.bodies[drips.streams[0]]) == 1800
        answer = b""
        while not answer.endswith(b"x" * 1800):
            answer += links[1].recv(65536)
        until(lambda: running(one) <= 2, 10)
        assert running(one) == 2 and one.counter.read_text() == "0\n"
        assert not fast.http.resets


@pytest.mark.long
def test_a_drain_does_not_wait_for_a_slow_reader_not_even_of_a_replaced_worker(one):
    eve = Streams(one.port, ["large"] * 2)
    with repeating(lambda: eve.grant(1), 8), contextlib.closing(eve.http.socket):
        until(lambda: running(one) == 2, 10)
        one.reload()
        later = Streams(one.port, ["large"])
        with repeating(lambda: later.grant(1), 8), contextlib.closing(later.http.socket):
            until(lambda: one.state(SERVER) == "UP" and running(one) == 1)
            one.tell(f"set server chat/{SERVER} state drain")
            until(lambda: running(one) == 0 and one.counter.read_text() == "3\n", 60)
